package controller

import (
	"net/netip"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
)

// transfer gives an address that changed hands to its new owner. It deletes the former owner's connections that the new
// pod would not have as well: those of a local pod, and those that a remote pod had with local pods because policies
// allowed it as a peer. Any other pod could have opened the connections that a remote pod opened while no rule asked
// for its identity, unless a policy was added in between: deleting these is not urgent.
func (s *state) transfer(t index.Transfer) {
	table := s.tables[t.Family]
	table.Reassign(t.Entry, t.From != nil)
	switch {
	case t.From == nil && t.To != nil:
		table.Flows.Hurry(t.Addr)
	case t.From == nil:
	case t.WasLocal || t.To != nil && t.To.Local():
		table.Flows.Enter(conntrack.Request{Addr: t.Addr, Scope: conntrack.All})
	case !table.Active():
	case t.WasPeer:
		table.Flows.Enter(conntrack.Request{Addr: t.Addr, Later: t.To == nil})
	case s.isolation.Counts().Isolated != [len(npc.Directions)]int{}:
		table.Flows.Enter(conntrack.Request{Addr: t.Addr, Later: true})
	}
	s.failClosed.Transfer(t)
	s.late.transfer(t)
}

// findReassigned finds the addresses of a family that changed hands while weave-npc did not run: the kernel still has
// them as another pod's. It closes those of isolated pods that were deleted meanwhile.
func (s *state) findReassigned(t *dataplane.Table) {
	found := func(a netip.Addr, scope conntrack.Scope) {
		if !t.Flows.Has(a) {
			t.Flows.Enter(conntrack.Request{Addr: a, Scope: scope})
		}
	}
	for e, st := range t.Local.Differences() {
		if st.Exists && (st.Wanted || !s.input.lacksPods()) {
			found(e.Prefix.Addr(), conntrack.All)
		}
	}
	for set := range t.Sets.OfPods() {
		for e, st := range set.Differences() {
			a := e.Prefix.Addr()
			if !st.Exists || !strings.Contains(st.Have.Comment, "/") {
				continue
			}
			p := s.index.Addresses.Owner(a)
			if p == nil && s.input.lacksPods() {
				continue // its pod may not have been read
			}
			// The comment is a local pod's in a set that stands for that of the local pods, whose name is taken.
			if p == nil || p.Comment() != st.Have.Comment && p.LocalComment() != st.Have.Comment {
				found(a, conntrack.WithLocalPods)
			}
		}
	}
	s.late.compare(t)
	s.failClosed.Recall(t.Family, s.isolation.Allowed(t.Family), s.facts())
}
