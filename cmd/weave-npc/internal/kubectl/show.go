package kubectl

import (
	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/flows"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/output"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	npccluster "github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// Show returns the command show, with further subcommands than those that do not need a node.
func Show(further ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the effect of policies: pods, policies, connections and the reachability matrix",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	if len(further) > 0 {
		cmd.Short = "Show the effect of policies: pods, policies, connections, the reachability matrix, " +
			"and the sets and rules of this node"
	}
	cmd.AddCommand(showPodsCommand(), showPoliciesCommand(), showMatrixCommand(), showConnectionsCommand())
	cmd.AddCommand(further...)
	return cli.Answers(cmd)
}

func showPodsCommand() *cobra.Command {
	return objectsCommand("pods", "List pods with the policies that isolate them",
		func(cmd *cobra.Command, l *listing, r *input.Staged) error {
			return output.Pods(cmd.OutOrStdout(), l.output.Name, explain.Pods(l.viewOf(r.Objects), l.namespace))
		})
}

func showPoliciesCommand() *cobra.Command {
	var from string
	cmd := objectsCommand("policies", "List policies with the pods that they isolate and the traffic that they allow",
		func(cmd *cobra.Command, l *listing, r *input.Staged) error {
			nodes := l.Nodes(r, cmd.ErrOrStderr())
			known, failed := l.hits(cmd, from)
			if from != "" && known == nil {
				return failed
			}
			err := output.Policies(cmd.OutOrStdout(), l.output.Name, explain.Policies(l.viewOf(r.Objects), l.namespace),
				r.Rows(l.namespace, l.viewOf, nodes), known)
			if err != nil {
				return err
			}
			return failed
		})
	cmd.Long = cmd.Short + ".\n" +
		"With --staged, staged policies are listed separately, by group, and the nodes are named that enforce them\n" +
		"nevertheless."
	cmd.Flags().StringVar(&from, "hits", "",
		"also list how often each rule decided: as all nodes say, which are asked as kubectl npc flows does, "+
			"or with --hits=FILE as flows --hits -o json has printed it")
	cmd.Flags().Lookup("hits").NoOptDefVal = hitsOfNodes
	return cmd
}

// hitsOfNodes is the value of --hits without one.
const hitsOfNodes = "nodes"

// hits returns the hits of rules that --hits asks for; nil for none. With an error they are those of some nodes.
func (l *listing) hits(cmd *cobra.Command, from string) (*flowlog.Hits, error) {
	if from == "" {
		return nil, nil
	}
	if from == hitsOfNodes {
		return flows.HitsOfCluster(cmd.Context(), l.Access, cmd.ErrOrStderr())
	}
	in := cmd.InOrStdin()
	if from == snapshot.StandardInput && l.Manifests == from {
		return nil, errors.New("--hits and --manifests: only one of them can be standard input")
	}
	if from != snapshot.StandardInput {
		file, err := cli.OpenFile("hits", from)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	h, err := flowlog.ReadHits(in)
	if err != nil {
		return nil, errors.Wrapf(err, "--hits %s", from)
	}
	return &h, nil
}

// listing is a list of objects of a cluster, with the values of its flags.
type listing struct {
	input.ObjectFlags
	namespace string
	output    cli.Format
}

// viewOf returns a View of some objects.
func (l *listing) viewOf(o snapshot.Objects) *npccluster.View { return l.Cluster(o).View() }

// objectsCommand returns a subcommand that shows objects of a cluster.
func objectsCommand(name, short string, show func(cmd *cobra.Command, l *listing, r *input.Staged) error,
) *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := l.output.Check(); err != nil {
				return err
			}
			l.Stdin = cmd.InOrStdin()
			l.ReadPartly(l.namespace)
			r, err := l.Preview(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			input.NoteWorkloads(cmd.ErrOrStderr(), r.Objects)
			input.NoteClusterPolicies(cmd.ErrOrStderr(), r.Objects)
			u := &r.Objects.Unreadable
			if l.namespace != "" && u.Pods.Lacks(l.namespace) && u.Policies.Lacks(l.namespace) {
				return errors.Errorf("namespace %s cannot be read: %s", l.namespace, u.Pods.Reason)
			}
			if err := l.viewOf(r.Objects).CheckNamespace(l.namespace); err != nil {
				return err
			}
			return show(cmd, &l, &r)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&l.namespace, "namespace", "n", "", "namespace to show (default: all)")
	input.RegisterAllNamespaces(cmd)
	l.output.Register(f, "table, wide: the same with all names, its lines not broken on a terminal, or json",
		"table", "wide", "json")
	l.RegisterAll(f)
	return cmd
}
