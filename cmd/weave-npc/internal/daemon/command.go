// Package daemon has the daemon that enforces policies on a node. It needs Linux.
//
//	root := daemon.Command()
//
// It connects the parts: a source delivers objects to the controller, the syncer brings the kernel to what the
// controller wants, and the observer reports and records what packets did. It imports nothing that answers questions:
// that is the job of packages kubectl and node.
package daemon

import (
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
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
