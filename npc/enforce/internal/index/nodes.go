package index

import (
	"cmp"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// nodes are the Nodes of the cluster, and the sets of the addresses of those that selectors match. Nodes are peers
// alone: whose an address is does not depend on them.
type nodes struct {
	tables [len(npc.Families)]*dataplane.Table
	byName map[string]*npc.Node
	// byAddr are the nodes that have an address. Several may.
	byAddr map[netip.Addr][]*npc.Node
	// sets are by the IDs of their specifications.
	sets map[string]*nodeSets
}

// nodeSets are the sets of the addresses of the nodes that a selector matches.
type nodeSets struct {
	rules.NodesSpec
	id     string
	sets   [len(npc.Families)]*dataplane.Set
	owners owners
}

func newNodes(tables [len(npc.Families)]*dataplane.Table) *nodes {
	return &nodes{tables: tables, byName: map[string]*npc.Node{}, byAddr: map[netip.Addr][]*npc.Node{},
		sets: map[string]*nodeSets{}}
}

// AsksForNodes reports whether a set of addresses of nodes is in use.
func (x *Index) AsksForNodes() bool { return len(x.Sets.nodes.sets) > 0 }

// IsNode reports whether a selector matches a Node that has an address.
func (x *Index) IsNode(a netip.Addr, s policy.Selector) bool {
	return slices.ContainsFunc(x.Sets.nodes.byAddr[a], func(n *npc.Node) bool { return s.Matches(n.Labels) })
}

// SetNode takes a Node as it now is.
func (x *Index) SetNode(n npc.Node) { x.Sets.nodes.replace(n.Name, &n) }

// DeleteNode removes a Node, if it is there and has the UID; an empty UID stands for any.
func (x *Index) DeleteNode(name string, uid types.UID) {
	if n := x.Sets.nodes.byName[name]; n != nil && (uid == "" || n.UID == uid) {
		x.Sets.nodes.replace(name, nil)
	}
}

// replace replaces a node by another of its name, or by none.
func (ns *nodes) replace(name string, by *npc.Node) {
	touched := map[netip.Addr]struct{}{}
	if was := ns.byName[name]; was != nil {
		delete(ns.byName, name)
		for _, a := range was.Addrs {
			touched[a] = struct{}{}
			without := slices.DeleteFunc(ns.byAddr[a], func(n *npc.Node) bool { return n == was })
			if ns.byAddr[a] = without; len(without) == 0 {
				delete(ns.byAddr, a)
			}
		}
	}
	if by != nil {
		ns.byName[name] = by
		for _, a := range by.Addrs {
			touched[a] = struct{}{}
			ns.byAddr[a] = append(ns.byAddr[a], by)
		}
	}
	for _, s := range ns.sets {
		for a := range touched {
			s.resolve(a, ns.byAddr[a])
		}
	}
}

// use returns the sets of a specification, making them if need be.
func (ns *nodes) use(set rules.Set, spec rules.NodesSpec) *nodeSets {
	if known := ns.sets[set.ID]; known != nil {
		return known
	}
	s := &nodeSets{NodesSpec: spec, id: set.ID, owners: owners{}}
	for f, t := range ns.tables {
		s.sets[f] = t.Sets.Add(set.Name(t.Family), ipset.HashIP, spec.String())
	}
	ns.sets[set.ID] = s
	for a, of := range ns.byAddr {
		s.resolve(a, of)
	}
	return s
}

// release ends a use of sets by policies, and removes them after their last use.
func (ns *nodes) release(s *nodeSets, users []*dataplane.Owner) {
	if s.owners.remove(users); len(s.owners) > 0 {
		return
	}
	delete(ns.sets, s.id)
	for _, set := range s.sets {
		set.Drop()
	}
}

// resolve puts an address into its family's set if the selector matches one of the nodes that have it, and else takes
// it out. Of several nodes the entry names the first.
func (s *nodeSets) resolve(a netip.Addr, of []*npc.Node) {
	set := s.sets[npc.FamilyOf(a)]
	var first *npc.Node
	for _, n := range of {
		if (s.Nodes == nil || s.Nodes.Matches(labels.Set(n.Labels))) && (first == nil || cmp.Less(n.Name, first.Name)) {
			first = n
		}
	}
	if first == nil {
		set.Remove(ipset.Addr(a))
		return
	}
	set.Add(ipset.Addr(a), ipset.Attr{Comment: iptables.Comment("node " + first.Name)})
}

// uses returns the sets with their users.
func (ns *nodes) uses() (out []Use) {
	for _, s := range ns.sets {
		for _, set := range s.sets {
			out = append(out, Use{set, s.owners})
		}
	}
	return out
}
