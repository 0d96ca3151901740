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
		Short: "Enforce Kubernetes network policies on this node with ipsets and iptables",
		Long: "Enforce Kubernetes network policies on this node with ipsets and iptables.\n\n" +
			"Every flag can be given as an environment variable: --node-name as " + cli.Variable("node-name") + ".",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.register(root.Flags())
	return root
}
