package kernel

import (
	"context"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/iptables/ports"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// State is what the kernel of this node has of weave-npc.
type State struct {
	backend  iptables.Backend
	families []npc.Family
	sets     []ipset.Listing
	tables   map[npc.Family]iptables.Seen
	ports    ports.State
	portsErr error // why ports is not known
	purpose  Purpose
}

// Purpose is what sets and chains are for. It is limited to the known objects of the cluster.
type Purpose struct {
	// Cluster has the objects; nil if they cannot be read.
	Cluster *cluster.Cluster
	// Sets are the uses of sets by name.
	Sets map[string]controller.SetUse
	// Chain returns what a chain is for, or an empty string; nil if that is not known.
	Chain func(name string) string
}

// Read reads the kernel. An empty backend stands for the one that the other rules of this node are in.
func Read(ctx context.Context, backend string, families []npc.Family) (*State, error) {
	s := &State{families: families, tables: map[npc.Family]iptables.Seen{}}
	conn, err := ipset.Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if s.sets, err = conn.List(naming.SetPrefix); err != nil {
		return nil, err
	}
	if s.backend, _, err = iptables.Detect(ctx, backend); err != nil {
		return nil, err
	}
	for _, f := range families {
		t, err := iptables.New(naming.IPTables(f), s.backend)
		if err != nil {
			return nil, err
		}
		if s.tables[f], err = t.Read(ctx, naming.ChainPrefix); err != nil {
			return nil, err
		}
	}
	s.ports, _, s.portsErr = ports.Tables{}.Read()
	return s, nil
}

// Describe records what sets and chains are for.
func (s *State) Describe(p Purpose) { s.purpose = p }

// chainUse returns what a chain is for, or an empty string.
func (s *State) chainUse(name string) string {
	if s.purpose.Chain == nil {
		return ""
	}
	return s.purpose.Chain(name)
}
