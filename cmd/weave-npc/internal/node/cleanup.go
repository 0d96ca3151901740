package node

import (
	"fmt"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/established"
	"github.com/weave-npc/weave-npc/npc/enforce/host"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/syncer"
)

func cleanupCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cleanup",
		Short: "Remove all chains, rules and sets of weave-npc from this node, the original weave-npc's too, " +
			"and nothing else",
		Long: "Remove all chains, rules and sets of weave-npc from this node, the original weave-npc's too,\n" +
			"and nothing else.\n\n" +
			"Policies are no longer enforced after that. Stop weave-npc first, or it puts everything back.",
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tables, err := allTables()
			if err != nil {
				return err
			}
			marks, err := established.Marks(cmd.Context(), tables)
			if err != nil {
				return err
			}
			removed, err := syncer.Cleanup(cmd.Context(), tables)
			for _, what := range removed {
				fmt.Fprintln(cmd.OutOrStdout(), "removed", what)
			}
			for f, bit := range marks {
				if e := established.Restore(f, bit); err == nil {
					err = e
				}
			}
			return err
		},
	}
}

// allTables returns the filter tables of every family and backend whose programs are installed on this node.
func allTables() ([]*iptables.Table, error) {
	var tables []*iptables.Table
	var missing error
	for _, b := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		for _, f := range host.Families() {
			t, err := iptables.New(naming.IPTables(f), b)
			if err != nil {
				missing = err
				continue
			}
			tables = append(tables, t)
		}
	}
	if len(tables) == 0 {
		return nil, errors.Wrap(missing, "no filter table can be read")
	}
	return tables, nil
}
