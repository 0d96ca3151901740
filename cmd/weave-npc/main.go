// Command weave-npc enforces Kubernetes network policies on a node with ipsets and iptables.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
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
	if !errors.Is(err, errDenied) {
		fmt.Fprintln(os.Stderr, root.Name()+":", err)
	}
	os.Exit(status(ran, err))
}

// status is the exit status after an error.
func status(ran *cobra.Command, err error) int {
	if errors.Is(err, errDenied) {
		return 1
	}
	for cmd := ran; cmd != nil; cmd = cmd.Parent() {
		if cmd.Name() == "explain" || cmd.Name() == "show" {
			return 2
		}
	}
	return 1
}

// command is weave-npc with its subcommands.
func command() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:   "weave-npc",
		Short: "Enforces Kubernetes network policies on this node with ipsets and iptables",
		Long: "Enforces Kubernetes network policies on this node with ipsets and iptables.\n\n" +
			"Every flag can be given as an environment variable: --node-name as WEAVE_NPC_NODE_NAME.",
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.register(root.Flags())
	root.AddCommand(explainCommand(), showCommand(), cleanupCommand(), versionCommand())
	return finished(root)
}

// finished sets what both roots have.
func finished(root *cobra.Command) *cobra.Command {
	root.SilenceErrors, root.SilenceUsage = true, true
	// The text of cobra's --version: to change it takes a template, and a program with templates keeps every exported method that it
	// links, which makes it half as large again.
	root.Version = version()
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return fromEnvironment(cmd) }
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return errors.Errorf("%s; see %s --help", flagMistake(cmd, err), cmd.CommandPath())
	})
	answerMistakes(root)
	if err := completeFlags(root); err != nil {
		panic(err) // a flag was registered twice
	}
	return root
}

// answerMistakes has all commands that others are below name the one that may be meant.
func answerMistakes(cmd *cobra.Command) {
	if cmd.HasSubCommands() {
		cmd.Args = noSuchCommand
	}
	for _, sub := range cmd.Commands() {
		answerMistakes(sub)
	}
}

// pluginName is the name by which kubectl finds the command, and runs it as "kubectl npc".
const pluginName = "kubectl-npc"

// isPlugin reports whether a command is run by kubectl.
func isPlugin(cmd *cobra.Command) bool { return cmd.Root().Name() == pluginName }

// plugin is what the command offers to kubectl: what needs no node.
func plugin() *cobra.Command {
	root := &cobra.Command{
		Use:         pluginName,
		Short:       "Says who reaches whom under a cluster's network policies, and why",
		Args:        knownCommand,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl npc"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(explainCommand(), showCommand(), versionCommand())
	return finished(root)
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Prints the version",
		Args:  cobra.NoArgs,
		RunE:  printVersion,
	}
}

// printVersion prints what --version does.
func printVersion(cmd *cobra.Command, _ []string) error {
	_, err := fmt.Fprintln(cmd.OutOrStdout(), cmd.Root().DisplayName(), "version", version())
	return errors.Wrap(err, "printing the version")
}

// version is what the binary was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "unreleased"
	}
	return info.Main.Version
}
