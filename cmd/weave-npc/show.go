package main

import (
	"os"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/commandline"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/flowscommand"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/render"
	npccluster "github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/flows"
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
	return objectsCommand(&cluster{}, "pods", "Lists pods with the policies that isolate them",
		func(cmd *cobra.Command, format string, v *npccluster.View, namespace string) error {
			return render.Pods(cmd.OutOrStdout(), format, explain.Pods(v, namespace))
		})
}

func showPoliciesCommand() *cobra.Command {
	c, from := &cluster{}, ""
	cmd := objectsCommand(c, "policies", "Lists policies with the pods that they isolate and the traffic that they allow",
		func(cmd *cobra.Command, format string, v *npccluster.View, namespace string) error {
			known, failed := c.hits(cmd, from)
			if from != "" && known == nil {
				return failed
			}
			if err := render.Policies(cmd.OutOrStdout(), format, explain.Policies(v, namespace), known); err != nil {
				return err
			}
			return failed
		})
	cmd.Flags().StringVar(&from, "hits", "", "also list how often each rule decided: as all nodes say, which are asked as kubectl npc flows does, "+
		"or with --hits=FILE as flows --hits -o json has printed it")
	cmd.Flags().Lookup("hits").NoOptDefVal = hitsOfNodes
	return cmd
}

// hitsOfNodes is the value of --hits without one.
const hitsOfNodes = "nodes"

// hits returns the hits of rules that --hits asks for; nil for none. With an error they are those of some nodes.
func (c *cluster) hits(cmd *cobra.Command, from string) (*flows.Hits, error) {
	if from == "" {
		return nil, nil
	}
	if from == hitsOfNodes {
		return flowscommand.HitsOfCluster(cmd.Context(), c.kubeconfig, c.context, cmd.ErrOrStderr())
	}
	in := cmd.InOrStdin()
	if from != "-" {
		file, err := os.Open(from)
		if err != nil {
			return nil, errors.Wrap(err, "--hits")
		}
		defer file.Close()
		in = file
	}
	h, err := flows.ReadHits(in)
	if err != nil {
		return nil, errors.Wrapf(err, "--hits %s", from)
	}
	return &h, nil
}

// objectsCommand returns a subcommand that shows objects of a cluster.
func objectsCommand(c *cluster, name, short string,
	show func(cmd *cobra.Command, format string, v *npccluster.View, namespace string) error) *cobra.Command {
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
			return show(cmd, output.Name, v, namespace)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&namespace, "namespace", "n", "", "namespace to show (default: all)")
	output.Register(f, "table or json", "table", "json")
	c.register(f)
	return cmd
}
