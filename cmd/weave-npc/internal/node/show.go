package node

import (
	"context"
	"fmt"
	"io"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli/sharedflags"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/output"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/npc/observe/flowsocket"
)

func showSetsCommand() *cobra.Command {
	return kernelCommand("sets",
		"List the sets in this node's kernel with their members, and the policies that use them",
		func(_ context.Context, out, _ io.Writer, format string, s *nodeState) error {
			return output.Sets(out, format, s.Sets())
		})
}

func showNamesCommand() *cobra.Command {
	return kernelCommand("names",
		"List the addresses that this node has learned for domain names, for how long, and the policies that use them",
		func(_ context.Context, out, _ io.Writer, format string, s *nodeState) error {
			return output.Names(out, format, s.Names())
		})
}

func showRulesCommand() *cobra.Command {
	socket := sharedflags.DefaultFlowsSocket
	cmd := kernelCommand("rules",
		"List the rules in this node's kernel with what they match, the policies that they enforce, "+
			"and how often they decided",
		func(ctx context.Context, out, stderr io.Writer, format string, s *nodeState) error {
			var policies []explain.PolicyRow
			if s.cluster != nil {
				policies = explain.Policies(s.cluster.View(), "")
			}
			return output.Rules(out, format, s.Rules(), nodeHits(ctx, socket, stderr), policies)
		})
	sharedflags.FlowsSocket(cmd.Flags(), &socket)
	return cmd
}

// nodeHits returns the hits that the weave-npc of this node has counted; nil if there is none that records connections.
func nodeHits(ctx context.Context, socket string, stderr io.Writer) *flowlog.Hits {
	h, err := flowsocket.Client{Path: socket}.ReadHits(ctx)
	if err == nil {
		return &h
	}
	if !errors.Is(err, flowsocket.ErrUnserved) {
		fmt.Fprintln(stderr, "weave-npc: how often rules decided is not known:", err)
	}
	return nil
}

// kernelCommand returns a subcommand that shows a part of this node's kernel state.
func kernelCommand(name, short string,
	show func(ctx context.Context, out, stderr io.Writer, format string, s *nodeState) error,
) *cobra.Command {
	var c input.ObjectFlags
	var output cli.Format
	n := newNode()
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Long:  short + ".\nTheir purpose is shown if the objects can be read, from an API server or from manifests.",
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			c.Stdin = cmd.InOrStdin()
			s, err := n.read(cmd.Context(), &c, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if s.unreadable != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "weave-npc: the selectors of sets and chains are not known:",
					s.unreadable)
			}
			return show(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), output.Name, s)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	n.Register(f)
	output.Register(f, "table or json", "table", "json")
	c.Register(f)
	return cmd
}
