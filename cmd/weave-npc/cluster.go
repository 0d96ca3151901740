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
	npccluster "github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/source/apiclient"
	"github.com/weave-npc/weave-npc/npc/source/policyapi"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// cluster reads objects once, from an API server or from manifests.
type cluster struct {
	kubeconfig, context, manifests string
	legacyNetpol                   bool
}

func (c *cluster) register(f *pflag.FlagSet) {
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file for the API server (default: the one that kubectl uses)")
	commandline.File(f, "kubeconfig")
	f.StringVar(&c.context, "context", "", "context of the kubeconfig (default: its current one)")
	registerManifests(f, &c.manifests)
	registerLegacyNetpol(f, &c.legacyNetpol)
}

// objects reads namespaces, pods and policies.
func (c *cluster) objects(ctx context.Context) (snapshot.Objects, error) {
	switch {
	case c.manifests != "" && c.kubeconfig != "":
		return snapshot.Objects{}, errors.New("--kubeconfig and --manifests: give one of them")
	case c.manifests != "":
		return snapshot.Load(c.manifests)
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

// network reads what leads to pods: Services, nodes and ranges of addresses.
func (c *cluster) network(ctx context.Context) (snapshot.Network, error) {
	if c.manifests != "" {
		return snapshot.LoadNetwork(c.manifests)
	}
	client, _, err := apiclient.ForUser(c.kubeconfig, c.context, version())
	if err != nil {
		return snapshot.Network{}, err
	}
	return snapshot.ListNetwork(ctx, client), nil
}

// view reads the objects and returns them as a View. What it does not consider is noted in stderr.
func (c *cluster) view(ctx context.Context, stderr io.Writer) (*npccluster.View, error) {
	all, err := c.all(ctx, stderr)
	if err != nil {
		return nil, err
	}
	return all.View(), nil
}

// all reads the objects as a Cluster. What it does not consider is noted in stderr.
func (c *cluster) all(ctx context.Context, stderr io.Writer) (*npccluster.Cluster, error) {
	o, err := c.objects(ctx)
	if err != nil {
		return nil, err
	}
	noteClusterPolicies(stderr, o)
	return c.of(o), nil
}

func replayCommand() *cobra.Command {
	c := &cluster{}
	return recorded.Replay(recorded.Policies{Register: c.register, Read: c.all})
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
