package main

import (
	"context"
	"fmt"
	"io"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/commandline"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/recorded"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/rehearsal"
	npccluster "github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	"github.com/weave-npc/weave-npc/npc/source/policyapi"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// cluster reads objects once, from an API server or from manifests.
type cluster struct {
	kubeconfig, context, manifests string
	legacyNetpol                   bool
	rehearsal                      rehearsal.Flags

	stdin io.Reader // that of the command, for manifests; nil if another flag reads it
	// enforced asks for the pods that nodes enforce policies for, without those that stand for workloads.
	enforced bool
	opened   *snapshot.Manifests // nil before they are
}

func (c *cluster) register(f *pflag.FlagSet) {
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file for the API server (default: the one that kubectl uses)")
	commandline.File(f, "kubeconfig")
	f.StringVar(&c.context, "context", "", "context of the kubeconfig (default: its current one)")
	f.StringVarP(&c.manifests, "manifests", "f", "", "directory or file to read namespaces, pods, workloads and policies from, or - for standard input, "+
		"instead of an API server")
	commandline.File(f, "manifests")
	registerLegacyNetpol(f, &c.legacyNetpol)
	c.rehearsal.Register(f)
}

// registerAll registers the flags, and that by which answers are about a world of staged policies.
func (c *cluster) registerAll(f *pflag.FlagSet) {
	c.register(f)
	c.rehearsal.RegisterWorld(f)
}

// objects reads namespaces, pods and those policies that count. Which others are annotated is noted in stderr.
func (c *cluster) objects(ctx context.Context, stderr io.Writer) (snapshot.Objects, error) {
	r, err := c.rehearse(ctx, stderr)
	noteWorkloads(stderr, r.Objects)
	return r.Objects, err
}

// rehearse reads namespaces, pods and policies, and tells the staged policies from the others.
func (c *cluster) rehearse(ctx context.Context, stderr io.Writer) (rehearsal.Rehearsal, error) {
	if err := c.rehearsal.Check(); err != nil {
		return rehearsal.Rehearsal{}, err
	}
	all, err := c.everything(ctx)
	if err != nil {
		return rehearsal.Rehearsal{}, err
	}
	return c.rehearsal.Apply(all, stderr)
}

// everything reads namespaces, pods and all policies.
func (c *cluster) everything(ctx context.Context) (snapshot.Objects, error) {
	switch {
	case c.manifests != "" && c.kubeconfig != "":
		return snapshot.Objects{}, errors.New("--kubeconfig and --manifests: give one of them")
	case c.manifests != "":
		m, err := c.open()
		switch {
		case err != nil:
			return snapshot.Objects{}, err
		case c.enforced:
			return m.Objects()
		}
		return m.WithWorkloads()
	}
	client, config, err := apiclient.ForUser(c.kubeconfig, c.context, version())
	if err != nil {
		return snapshot.Objects{}, err
	}
	policies, err := policyapi.New(client, config)
	if err != nil {
		return snapshot.Objects{}, err
	}
	return snapshot.List(ctx, client, policies)
}

// open opens the manifests, once.
func (c *cluster) open() (_ *snapshot.Manifests, err error) {
	if c.opened == nil {
		c.opened, err = snapshot.Open(c.manifests, c.stdin)
	}
	return c.opened, errors.Wrap(err, "--manifests")
}

// network reads what leads to pods: Services, nodes and ranges of addresses.
func (c *cluster) network(ctx context.Context) (snapshot.Network, error) {
	if c.manifests != "" {
		m, err := c.open()
		if err != nil {
			return snapshot.Network{}, err
		}
		return m.Network()
	}
	client, _, err := apiclient.ForUser(c.kubeconfig, c.context, version())
	if err != nil {
		return snapshot.Network{}, err
	}
	return snapshot.ListNetwork(ctx, client), nil
}

// nodes finds out how the nodes treat the policies that are staged, and notes in stderr where they are enforced. It returns nil if none is staged, and
// for manifests.
func (c *cluster) nodes(ctx context.Context, r *rehearsal.Rehearsal, stderr io.Writer) (*rehearsal.Nodes, error) {
	if c.manifests != "" || !r.Staged() {
		return nil, nil //nolint:nilnil // as said
	}
	client, _, err := apiclient.ForUser(c.kubeconfig, c.context, version())
	if err != nil {
		return nil, err
	}
	return r.Nodes(ctx, client, stderr), nil
}

// view reads the objects and returns them as a View. What it does not consider is noted in stderr.
func (c *cluster) view(ctx context.Context, stderr io.Writer) (*npccluster.View, error) {
	o, err := c.objects(ctx, stderr)
	if err != nil {
		return nil, err
	}
	noteClusterPolicies(stderr, o)
	return c.of(o).View(), nil
}

func replayCommand() *cobra.Command {
	c := &cluster{}
	return recorded.Replay(recorded.Policies{Register: c.registerAll, Read: func(ctx context.Context, stdin io.Reader, stderr io.Writer) (*npccluster.Cluster, error) {
		c.stdin = stdin
		r, err := c.rehearse(ctx, stderr)
		if err != nil {
			return nil, err
		}
		noteClusterPolicies(stderr, r.Objects)
		if err := r.ApplyOnly(stderr); err != nil {
			return nil, err
		}
		return c.of(r.Objects), nil
	}})
}

// noteWorkloads notes what the user has to know about the pods that stand for workloads.
func noteWorkloads(stderr io.Writer, o snapshot.Objects) {
	for _, note := range o.Notes {
		_, _ = fmt.Fprintln(stderr, "weave-npc:", note)
	}
}

// noteClusterPolicies notes that ClusterNetworkPolicies, or the nodes that they name, could not be read.
func noteClusterPolicies(stderr io.Writer, o snapshot.Objects) {
	if o.ClusterPoliciesUnread != "" {
		_, _ = fmt.Fprintf(stderr, "weave-npc: ClusterNetworkPolicies are not considered, and whether there are any is not known: %s\n",
			o.ClusterPoliciesUnread)
	}
	if o.NodesUnread != "" {
		_, _ = fmt.Fprintf(stderr, "weave-npc: nodes are not considered, which ClusterNetworkPolicies name as peers: %s\n", o.NodesUnread)
	}
}

// of returns a Cluster of some objects.
func (c *cluster) of(o snapshot.Objects) *npccluster.Cluster {
	all := npccluster.New()
	all.LegacyNetpol = c.legacyNetpol
	o.Deliver(all)
	return all
}
