package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/commandline"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/render"
	npccluster "github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/explain"
)

func showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Shows the effect of policies: pods, policies, the matrix of who reaches whom, and the sets and rules of this node",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(showPodsCommand(), showPoliciesCommand(), showMatrixCommand(), showSetsCommand(), showRulesCommand())
	return cmd
}

func showPodsCommand() *cobra.Command {
	return objectsCommand("pods", "Lists pods with the policies that isolate them",
		func(out io.Writer, format string, v *npccluster.View, namespace string) error {
			return render.Pods(out, format, explain.Pods(v, namespace))
		})
}

func showPoliciesCommand() *cobra.Command {
	return objectsCommand("policies", "Lists policies with the pods that they isolate and the traffic that they allow",
		func(out io.Writer, format string, v *npccluster.View, namespace string) error {
			return render.Policies(out, format, explain.Policies(v, namespace))
		})
}

// objectsCommand returns a subcommand that shows objects of a cluster.
func objectsCommand(name, short string, show func(out io.Writer, format string, v *npccluster.View, namespace string) error) *cobra.Command {
	var c cluster
	var namespace string
	var output commandline.Format
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			v, err := c.view(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := v.CheckNamespace(namespace); err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), output.Name, v, namespace)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&namespace, "namespace", "n", "", "namespace to show (default: all)")
	output.Register(f, "table or json", "table", "json")
	c.register(f)
	return cmd
}
