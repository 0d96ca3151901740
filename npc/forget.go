package npc

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/conntrack"
)

// reassigned has the connections deleted of an address that another pod owns now, or none, as far as they are not the new
// pod's as well: those of a local pod, and those that a remote pod had with local ones by its own rights. What a remote pod had
// while nothing asked who it is, another could have begun just so, unless a policy came in between: that is not urgent.
func (m *Model) reassigned(a netip.Addr, from, to *pod) {
	t := m.tables[familyOf(a)]
	_, wasLocal := m.localAddrs[a]
	switch {
	case from == nil && to != nil:
		t.flows.Hurry(a)
	case from == nil:
	case wasLocal || to != nil && to.local:
		t.flows.Enter(conntrack.Request{Addr: a, Scope: conntrack.All})
	case !t.active:
	case slices.ContainsFunc(from.members, func(w membership) bool { return w.entry.Prefix.Addr() == a && !m.gates.has(w.set) }):
		t.flows.Enter(conntrack.Request{Addr: a, Later: to == nil})
	case m.isolatedPods != [len(directions)]int{}:
		t.flows.Enter(conntrack.Request{Addr: a, Later: true})
	}
}

// findChangedHands finds the addresses that changed hands while nobody looked: the kernel still has them as another pod's.
func (m *Model) findChangedHands(f Family) {
	t := m.tables[f]
	found := func(a netip.Addr, scope conntrack.Scope) {
		if !t.flows.Has(a) {
			t.flows.Enter(conntrack.Request{Addr: a, Scope: scope})
		}
	}
	for e := range t.local.dirty {
		if st := t.local.entries[e]; st.exists && (st.wanted || m.missing == NothingMissing) {
			found(e.Prefix.Addr(), conntrack.All)
		}
	}
	for _, s := range t.sets {
		if s.fixed || s.Type != ipset.HashIP && s.Type != ipset.HashIPPort {
			continue
		}
		for e := range s.dirty {
			st, a := s.entries[e], e.Prefix.Addr()
			if !st.exists || !strings.Contains(st.have.Comment, "/") {
				continue
			}
			p := m.claims.Owner(a)
			if p == nil && m.missing != NothingMissing {
				continue // its pod may not have been read
			}
			if p == nil || comment(p.String()) != st.have.Comment {
				found(a, conntrack.WithLocalPods)
			}
		}
	}
}

// Forgotten tells the model that the connections of the addresses' former pods, which plans asked to delete, are deleted.
func (m *Model) Forgotten(f Family, addrs []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tables[f].flows.Strike(addrs)
}

// ForgetAgain makes the next plan repeat requests to delete connections that were not made.
func (m *Model) ForgetAgain(f Family, requests []conntrack.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range requests {
		m.tables[f].flows.Enter(r)
	}
}

// IsLocal reports whether an address is a local pod's.
func (m *Model) IsLocal(a netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.localAddrs[a]
	return ok
}

// keepsBack reports whether an entry stays as it is in the kernel until the connections of the address's former pod are
// deleted. What shows, after a restart, whose the address was stays too.
func (t *table) keepsBack(s *set, e ipset.Entry) bool {
	a := e.Prefix.Addr()
	if !t.flows.Has(a) || t.unpoliced || s.Type == ipset.HashNet {
		return false
	}
	st := s.entries[e]
	if s == t.local {
		return st.exists
	}
	if !st.wanted || st.exists {
		return false
	}
	t.flows.Hurry(a)
	return true
}
