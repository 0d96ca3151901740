// Package daemon has the daemon that enforces policies on a node, and the commands that read the node's kernel.
//
//	root := daemon.Command() // which runs the daemon
//	root.AddCommand(daemon.Commands()...)
//
// It needs Linux. What is asked about policies is the job of package asking.
package daemon

import (
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/flows"
	"github.com/weave-npc/weave-npc/npc/observe/flowsocket"
)

// Command returns the command that runs the daemon, without subcommands.
func Command() *cobra.Command {
	o := defaults()
	root := &cobra.Command{
		Use:   "weave-npc",
		Short: "Enforces Kubernetes network policies on this node with ipsets and iptables",
		Long: "Enforces Kubernetes network policies on this node with ipsets and iptables.\n\n" +
			"Every flag can be given as an environment variable: --node-name as " + cli.Variable("node-name") + ".",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.register(root.Flags())
	return root
}

// Commands returns the subcommands that read or clean up the kernel of this node.
func Commands() []*cobra.Command {
	return []*cobra.Command{kubectl.Explain(newNode()), kubectl.Show(showSetsCommand(), showRulesCommand()), flowsCommand(),
		cleanupCommand()}
}

// flowsCommand returns the command that lists the connections of this node.
func flowsCommand() *cobra.Command {
	client := &flowsocket.Client{Path: defaults().flowsSocket}
	cmd := flows.OfNode(client)
	registerFlowsSocket(cmd.Flags(), &client.Path)
	return cmd
}
