package main

import (
	"context"
	"os"

	"github.com/pkg/errors"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// node is this node, whose kernel is read.
type node struct {
	name, backend string
	maxListSize   int
}

func (n *node) register(f *pflag.FlagSet) {
	f.StringVar(&n.name, "node-name", "", "name of this node (default $HOSTNAME)")
	f.StringVar(&n.backend, "iptables-backend", "", "nft or legacy (default: what the other rules of this node are in)")
	f.IntVar(&n.maxListSize, "max-list-size", 1024, "as weave-npc on this node has it")
}

// holdings is what a node's kernel holds of ours, and what that is for.
type holdings struct {
	backend iptables.Backend
	sets    []ipset.Listing
	tables  map[npc.Family]iptables.Seen
	// model knows what sets and chains are for, and world the objects; nil if the objects cannot be read.
	model   *npc.Model
	world   *explain.World
	objects snapshot.Objects
	// unknown is why the objects cannot be read.
	unknown error
}

// read reads the kernel, and the objects if they can be read.
func (n *node) read(ctx context.Context, c *cluster) (*holdings, error) {
	if n.name == "" {
		n.name = os.Getenv("HOSTNAME")
	}
	if n.name == "" {
		return nil, errors.New("no node name: give --node-name or set $HOSTNAME")
	}
	h := &holdings{tables: map[npc.Family]iptables.Seen{}}
	conn, err := ipset.Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if h.sets, err = conn.List(naming.SetPrefix); err != nil {
		return nil, err
	}
	if h.backend, _, err = iptables.Detect(ctx, n.backend); err != nil {
		return nil, err
	}
	for _, f := range familiesOfNode() {
		t, err := iptables.New(f.IPTables(), h.backend)
		if err != nil {
			return nil, err
		}
		if h.tables[f], err = t.Read(ctx, naming.ChainPrefix); err != nil {
			return nil, err
		}
	}
	if h.objects, h.unknown = c.objects(ctx); h.unknown == nil {
		h.know(n, c, h.objects)
	}
	return h, h.check(n.name)
}

// know tells what the objects are.
func (h *holdings) know(n *node, c *cluster, o snapshot.Objects) {
	h.model = npc.New(npc.Config{NodeName: n.name, Hook: npc.HookForward, AllowAction: "ACCEPT", Gate: npc.GateOpen, NFLogGroup: 86,
		AllowMcast: true, MaxListSize: n.maxListSize, LegacyNetpol: c.legacyNetpol})
	h.world = explain.NewWorld()
	h.world.LegacyNetpol = c.legacyNetpol
	o.Deliver(h.model)
	o.Deliver(h.world)
}
