package main

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/host"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kernelstate"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/controller"
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/source"
)

// node reads the kernel of this node. Its options are those of the daemon that runs there, as far as they matter.
type node struct{ daemon *options }

func newNode() *node {
	o := defaults()
	o.gate = string(npc.GateOpen) // the gate closes nothing that is shown
	return &node{daemon: o}
}

func (n *node) register(f *pflag.FlagSet) {
	registerNodeName(f, &n.daemon.nodeName)
	registerBackend(f, &n.daemon.backend)
	f.IntVar(&n.daemon.maxListSize, "max-list-size", n.daemon.maxListSize, "--max-list-size of weave-npc on this node")
}

// nodeState is the kernel state of a node, and the objects that explain it.
type nodeState struct {
	*kernelstate.State
	name    string
	world   *explain.World // nil if the objects cannot be read
	objects source.Objects
	// unread is the reason why the objects cannot be read.
	unread error
}

// read reads the kernel, and the objects if they can be read.
func (n *node) read(ctx context.Context, c *cluster) (*nodeState, error) {
	n.daemon.legacyNetpol = c.legacyNetpol
	config, err := n.daemon.config()
	if err != nil {
		return nil, err
	}
	s := &nodeState{name: config.NodeName}
	if s.State, err = kernelstate.Read(ctx, n.daemon.backend, host.Families()); err != nil {
		return nil, err
	}
	if s.objects, s.unread = c.objects(ctx); s.unread == nil {
		s.world = c.newWorld(s.objects)
		m := controller.New(config)
		s.objects.Feed(m)
		s.Describe(kernelstate.Purpose{World: s.world, Sets: m.Uses(), Chain: m.ChainUse})
	}
	return s, s.Check(s.name)
}
