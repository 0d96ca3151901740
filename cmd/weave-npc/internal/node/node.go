// Package node has the commands that read or clean up the kernel of the node that they run on.
//
//	root.AddCommand(node.Commands()...)
//
//	explain --kernel         as package kubectl has it, compared with the node's chains and sets (node)
//	show names, sets, rules  those of the kernel, with the policies that they are for (show)
//	flows                    the connections that the node's weave-npc has recorded (command)
//	cleanup                  removes all sets and chains of weave-npc
//
// They need Linux.
package node

import (
	"context"
	"io"
	"net/netip"

	"github.com/pkg/errors"
	"github.com/spf13/pflag"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli/sharedflags"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/query"
	npccluster "github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/host"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/observe/kernel"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// node reads the kernel of this node. Its options are flags of the daemon that runs there.
type node struct {
	name, backend string
	maxListSize   int
}

func newNode() *node { return &node{maxListSize: sharedflags.DefaultMaxListSize} }

// Register registers the flags of the daemon that matter.
func (n *node) Register(f *pflag.FlagSet) {
	sharedflags.NodeName(f, &n.name)
	sharedflags.Backend(f, &n.backend)
	f.IntVar(&n.maxListSize, "max-list-size", n.maxListSize, "--max-list-size of weave-npc on this node")
}

// nodeState is the kernel state of a node, and the objects that explain it.
type nodeState struct {
	*kernel.State
	name    string
	cluster *npccluster.Cluster // nil if the objects cannot be read
	objects snapshot.Objects
	// addrs are the addresses of the node's interfaces.
	addrs []netip.Addr
	// unreadable is the reason why the objects cannot be read.
	unreadable error
}

// read reads the kernel, and the objects if they can be read.
func (n *node) read(ctx context.Context, c *input.ObjectFlags, stderr io.Writer) (*nodeState, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	name, err := sharedflags.ResolveNodeName(n.name)
	if err != nil {
		return nil, err
	}
	if n.maxListSize < 0 {
		return nil, errors.Errorf("--max-list-size: %d is negative", n.maxListSize)
	}
	s := &nodeState{name: name}
	if s.State, err = kernel.Read(ctx, n.backend, host.Families()); err != nil {
		return nil, err
	}
	c.Enforced = true
	if s.objects, s.unreadable = c.Read(ctx, stderr); s.unreadable == nil {
		s.cluster = c.Cluster(s.objects)
		if at := host.Booted(); !at.IsZero() {
			s.cluster.SetBooted(s.name, at)
		}
		if s.addrs, err = host.ReadAddrs(); err != nil {
			return nil, err
		}
		// Only names and uses of sets and chains are asked for: other settings of the daemon do not matter.
		m := controller.New(enforce.Config{NodeName: name, FailClosed: enforce.FailClosedNever,
			MaxListSize: n.maxListSize, LegacyNetpol: c.LegacyNetpol, ForwardJump: true, AllowAction: "ACCEPT",
			AllowMcast: true})
		s.objects.Deliver(m)
		s.cluster.SetLearnedFor(s.Learned(s.lists()))
		s.Describe(kernel.Purpose{Cluster: s.cluster, Sets: m.Lookup().Uses(), Chain: m.Lookup().ChainUse})
	}
	return s, s.Check(s.name)
}

// lists returns the keys of the lists of domain names that policies have, by the names of their sets.
func (s *nodeState) lists() map[string]string {
	keys := map[string]string{}
	for _, p := range s.cluster.View().ClusterPolicies {
		for _, r := range p.Rules[npc.Egress] {
			for _, peer := range r.Peers {
				if peer.Names == nil {
					continue
				}
				set := rules.NewSet(rules.NamesSpec{Names: peer.Names})
				for _, f := range npc.Families {
					keys[set.Name(f)] = policy.NamesKey(peer.Names)
				}
			}
		}
	}
	return keys
}

// Know adds the kernel of this node to what an explanation is based on, with the objects that explain it.
func (n *node) Know(ctx context.Context, flags *input.ObjectFlags, stderr io.Writer, k *query.Knowledge) error {
	s, err := n.read(ctx, flags, stderr)
	if err != nil {
		return err
	}
	k.Cluster, k.Pods, k.Kernel, k.Node = s.cluster, s.objects.Pods, s.State, s.name
	input.NoteClusterPolicies(stderr, s.objects)
	if s.unreadable == nil {
		k.Cluster.SetNodeAddrs(s.name, s.addrs)
	}
	return s.unreadable
}
