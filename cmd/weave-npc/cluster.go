package main

import (
	"context"

	"github.com/pkg/errors"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/commandline"
	npccluster "github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/source"
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
func (c *cluster) objects(ctx context.Context) (source.Objects, error) {
	switch {
	case c.manifests != "" && c.kubeconfig != "":
		return source.Objects{}, errors.New("--kubeconfig and --manifests: give one of them")
	case c.manifests != "":
		return source.Load(c.manifests)
	}
	client, err := source.UserClient(c.kubeconfig, c.context, version())
	if err != nil {
		return source.Objects{}, err
	}
	return source.List(ctx, client)
}

// network reads what leads to pods: Services, nodes and ranges of addresses.
func (c *cluster) network(ctx context.Context) (source.Network, error) {
	if c.manifests != "" {
		return source.LoadNetwork(c.manifests)
	}
	client, err := source.UserClient(c.kubeconfig, c.context, version())
	if err != nil {
		return source.Network{}, err
	}
	return source.ListNetwork(ctx, client), nil
}

// view reads the objects and returns them as a View.
func (c *cluster) view(ctx context.Context) (*npccluster.View, error) {
	o, err := c.objects(ctx)
	if err != nil {
		return nil, err
	}
	return c.of(o).View(), nil
}

// of returns a Cluster of some objects.
func (c *cluster) of(o source.Objects) *npccluster.Cluster {
	all := npccluster.New()
	all.LegacyNetpol = c.legacyNetpol
	o.Feed(all)
	return all
}
