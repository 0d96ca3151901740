// Command weave-npc enforces Kubernetes network policies on a node with ipsets and iptables.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/commandline"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/flowscommand"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/recorded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	name := filepath.Base(os.Args[0])
	root := command()
	if name == pluginName {
		root = plugin()
	}
	ran, err := root.ExecuteContextC(ctx)
	stop()
	if err == nil {
		return
	}
	if !isAnswer(err) {
		fmt.Fprintln(os.Stderr, root.Name()+":", err)
	}
	os.Exit(status(ran, err))
}

// isAnswer reports whether an error is what was asked for, and printed already.
func isAnswer(err error) bool {
	return errors.Is(err, errDenied) || errors.Is(err, recorded.ErrChanged)
}

// status returns the exit status after an error of the command that ran.
func status(ran *cobra.Command, err error) int {
	if isAnswer(err) {
		return 1
	}
	for cmd := ran; cmd != nil; cmd = cmd.Parent() {
		switch cmd.Name() {
		case "explain", "show", "replay", "propose":
			return 2
		}
	}
	return 1
}

// command returns weave-npc with its subcommands.
func command() *cobra.Command {
	o := defaults()
	root := &cobra.Command{
		Use:   "weave-npc",
		Short: "Enforces Kubernetes network policies on this node with ipsets and iptables",
		Long: "Enforces Kubernetes network policies on this node with ipsets and iptables.\n\n" +
			"Every flag can be given as an environment variable: --node-name as " + commandline.Variable("node-name") + ".",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.register(root.Flags())
	root.AddCommand(explainCommand(), showCommand(), flowscommand.OfNode(defaults().flowsSocket, registerFlowsSocket), replayCommand(),
		recorded.Propose(), cleanupCommand(), versionCommand())
	return prepare(root)
}

// prepare gives a root command its version, variables, completion and answers to mistakes. The version has cobra's text: another text needs a
// template, and a program with templates links every exported method, which makes it half as large again.
func prepare(root *cobra.Command) *cobra.Command {
	root.Version = version()
	commandline.Prepare(root, command)
	return root
}

// pluginName is the name of the binary that kubectl runs as "kubectl npc".
const pluginName = "kubectl-npc"

// plugin returns the command for kubectl, with the subcommands that do not have to run on a node.
func plugin() *cobra.Command {
	root := &cobra.Command{
		Use:         pluginName,
		Short:       "Shows which pods reach which under a cluster's network policies, and why",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl npc"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(explainCommand(), showCommand(), flowscommand.OfCluster(), replayCommand(), recorded.Propose(), versionCommand())
	return prepare(root)
}
