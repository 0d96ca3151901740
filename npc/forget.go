package npc

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/conntrack"
)

// forgetting is an address that changed hands, and of which the connections of its former pod are not deleted yet. Until they
// are, nothing is opened to its next pod: a local one is closed, and a remote one is no peer.
type forgetting struct {
	scope conntrack.Scope
	// later says that nobody waits for it.
	later bool
	// asked says that a plan has asked for it.
	asked bool
}

// forgetFlows has the connections of an address that changed hands deleted.
func (t *table) forgetFlows(a netip.Addr, scope conntrack.Scope, later bool) {
	was, ok := t.forgetting[a]
	t.forgetting[a] = forgetting{scope: max(scope, was.scope), later: later && (!ok || was.later)}
}

// reassigned has the connections deleted of an address that another pod owns now, or none, as far as they are not the new
// pod's as well: those of a local pod, and those that a remote pod had with local ones by its own rights. What a remote pod had
// while nothing asked who it is, another could have begun just so, unless a policy came in between: that is not urgent.
func (m *Model) reassigned(a netip.Addr, from, to *pod) {
	t := m.tables[familyOf(a)]
	_, wasLocal := m.localAddrs[a]
	waiting, ok := t.forgetting[a]
	switch {
	case from == nil && ok && to != nil:
		t.forgetFlows(a, waiting.scope, false)
	case from == nil:
	case wasLocal || to != nil && to.local:
		t.forgetFlows(a, conntrack.All, false)
	case !t.active:
	case slices.ContainsFunc(from.members, func(w membership) bool { return w.entry.Prefix.Addr() == a && !m.gates.has(w.set) }):
		t.forgetFlows(a, conntrack.WithLocalPods, to == nil)
	case m.isolatedPods != [len(directions)]int{}:
		t.forgetFlows(a, conntrack.WithLocalPods, true)
	}
}

// findChangedHands finds the addresses that changed hands while nobody looked: the kernel still has them as another pod's.
func (m *Model) findChangedHands(f Family) {
	t := m.tables[f]
	found := func(a netip.Addr, scope conntrack.Scope) {
		if _, known := t.forgetting[a]; !known {
			t.forgetFlows(a, scope, false)
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

// Forgotten takes the addresses of which all connections of former pods are deleted that plans asked for.
func (m *Model) Forgotten(f Family, addrs []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tables[f]
	for _, a := range addrs {
		if t.forgetting[a].asked {
			delete(t.forgetting, a)
		}
	}
}

// ForgetAgain has the next plan ask again for what could not be asked for.
func (m *Model) ForgetAgain(f Family, requests []conntrack.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range requests {
		m.tables[f].forgetFlows(r.Addr, r.Scope, r.Later)
	}
}

// isLocal reports whether an address is a local pod's.
func (m *Model) isLocal(a netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.localAddrs[a]
	return ok
}

// keepsBack reports whether an entry stays as it is in the kernel until the connections of the address's former pod are
// deleted. What shows, after a restart, whose the address was stays too.
func (t *table) keepsBack(s *set, e ipset.Entry) bool {
	a := e.Prefix.Addr()
	waiting, ok := t.forgetting[a]
	if !ok || t.unpoliced || s.Type == ipset.HashNet {
		return false
	}
	st := s.entries[e]
	if s == t.local {
		return st.exists
	}
	if !st.wanted || st.exists {
		return false
	}
	if waiting.later {
		t.forgetFlows(a, waiting.scope, false)
	}
	return true
}

// planForgetting asks for the connections to be deleted that no plan has asked for.
func (t *table) planForgetting(tx *Transaction) {
	for a, f := range t.forgetting {
		if !f.asked {
			f.asked = true
			t.forgetting[a] = f
			tx.Forget = append(tx.Forget, conntrack.Request{Addr: a, Scope: f.scope, Later: f.later})
		}
	}
	slices.SortFunc(tx.Forget, func(a, b conntrack.Request) int { return a.Addr.Compare(b.Addr) })
}

// unasked reports whether a plan has to ask for something.
func (t *table) unasked() bool {
	for _, f := range t.forgetting {
		if !f.asked {
			return true
		}
	}
	return false
}

// held counts the addresses that wait for connections to be deleted.
func (t *table) held() (n int) {
	for _, f := range t.forgetting {
		if !f.later {
			n++
		}
	}
	return n
}

// takeForgotten takes over what was deleted, and what cannot be.
func (s *Syncer) takeForgotten() {
	for _, k := range s.kernels {
		s.model.Forgotten(k.family, k.flows.Done())
		err, _ := k.flows.Trouble(time.Now())
		switch {
		case err != nil && k.unforgetting == "":
			s.metrics.EnforcementErrors.Inc()
			s.log.Error("cannot delete the connections of addresses that other pods have now: these are not opened; trying again",
				"family", k.family, "error", err.Error())
			k.unforgetting = err.Error()
		case err == nil && k.unforgetting != "":
			s.log.Info("connections of addresses that other pods have now can be deleted again", "family", k.family)
			k.unforgetting = ""
		}
	}
}

// unforgotten returns why addresses are not opened; empty if none has to wait.
func (k *kernel) unforgotten() string {
	err, stuck := k.flows.Trouble(time.Now())
	switch {
	case err != nil:
		return "the connections of addresses that other pods have now cannot be deleted, so that these are not opened: " +
			k.family.String() + ": " + err.Error()
	case stuck:
		return "it takes long to delete the connections of addresses that other pods have now, so that these are not opened: " +
			k.family.String()
	}
	return ""
}
