package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/commandline"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kernelstate"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/render"
)

func showSetsCommand() *cobra.Command {
	return kernelCommand("sets", "Lists the sets in this node's kernel with their members, and the policies that use them",
		func(out io.Writer, format string, s *kernelstate.State) error {
			return render.Sets(out, format, s.Sets())
		})
}

func showRulesCommand() *cobra.Command {
	return kernelCommand("rules", "Lists the rules in this node's kernel with what they match, and the policies that they enforce",
		func(out io.Writer, format string, s *kernelstate.State) error {
			return render.Rules(out, format, s.Rules())
		})
}

// kernelCommand returns a subcommand that shows a part of this node's kernel state.
func kernelCommand(name, short string, show func(out io.Writer, format string, s *kernelstate.State) error) *cobra.Command {
	var c cluster
	var output commandline.Format
	n := newNode()
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Long:  short + ".\nTheir purpose is shown if the objects can be read, from an API server or from manifests.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			s, err := n.read(cmd.Context(), &c, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if s.unread != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "weave-npc: the selectors of sets and chains are not known:", s.unread)
			}
			return show(cmd.OutOrStdout(), output.Name, s.State)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	n.register(f)
	output.Register(f, "table or json", "table", "json")
	c.register(f)
	return cmd
}
