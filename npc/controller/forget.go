package controller

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// reassigned has the connections deleted of an address that another pod owns now, or none, as far as they are not the new
// pod's as well: those of a local pod, and those that a remote pod had with local ones by its own rights. What a remote pod had
// while nothing asked who it is, another could have begun just so, unless a policy came in between: that is not urgent.
func (m *Controller) reassigned(a netip.Addr, from, to *pod) {
	t := m.tables[traffic.FamilyOf(a)]
	_, wasLocal := m.localAddrs[a]
	switch {
	case from == nil && to != nil:
		t.Flows.Hurry(a)
	case from == nil:
	case wasLocal || to != nil && to.local:
		t.Flows.Enter(conntrack.Request{Addr: a, Scope: conntrack.All})
	case !t.Active():
	case slices.ContainsFunc(from.members, func(w membership) bool { return w.entry.Prefix.Addr() == a && !m.gates.has(w.set) }):
		t.Flows.Enter(conntrack.Request{Addr: a, Later: to == nil})
	case m.isolatedPods != [len(traffic.Directions)]int{}:
		t.Flows.Enter(conntrack.Request{Addr: a, Later: true})
	}
}

// findChangedHands finds the addresses that changed hands while nobody looked: the kernel still has them as another pod's.
func (m *Controller) findChangedHands(f traffic.Family) {
	t := m.tables[f]
	found := func(a netip.Addr, scope conntrack.Scope) {
		if !t.Flows.Has(a) {
			t.Flows.Enter(conntrack.Request{Addr: a, Scope: scope})
		}
	}
	for e, st := range t.Local.Differences() {
		if st.Exists && (st.Wanted || m.missing == npc.NothingMissing) {
			found(e.Prefix.Addr(), conntrack.All)
		}
	}
	for s := range t.Sets.OfPods() {
		for e, st := range s.Differences() {
			a := e.Prefix.Addr()
			if !st.Exists || !strings.Contains(st.Have.Comment, "/") {
				continue
			}
			p := m.claims.Owner(a)
			if p == nil && m.missing != npc.NothingMissing {
				continue // its pod may not have been read
			}
			if p == nil || comment(p.String()) != st.Have.Comment {
				found(a, conntrack.WithLocalPods)
			}
		}
	}
}

// Forgotten takes the addresses of which all connections of former pods are deleted that plans asked for.
func (m *Controller) Forgotten(f traffic.Family, addrs []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tables[f].Flows.Strike(addrs)
}

// IsLocal reports whether an address is a local pod's.
func (m *Controller) IsLocal(a netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.localAddrs[a]
	return ok
}
