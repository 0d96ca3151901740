package npc

import (
	"net/netip"
	"slices"
)

// claimants are the pods that say that an address is theirs. Addresses are used again before we
// hear that their former pod is gone; each belongs to exactly one.
type claimants struct {
	owner  *pod
	others []*pod
}

// before says whether a is rather than b the pod that an address belongs to.
func (m *Model) before(a, b *pod) bool { return OwnsRather(&a.Pod, &b.Pod, m.NodeName) }

// OwnsRather says whether, of two pods that claim an address, a node takes a rather than b for its owner.
func OwnsRather(a, b *Pod, node string) bool {
	if local := a.Node == node; local != (b.Node == node) {
		return local
	}
	if a.Deleting != b.Deleting {
		return b.Deleting
	}
	if c := a.Started.Compare(b.Started); c != 0 {
		return c > 0
	}
	if c := a.Created.Compare(b.Created); c != 0 {
		return c > 0
	}
	return a.UID > b.UID
}

// claim replaces a pod's former claims by its present ones and settles who owns the addresses.
func (m *Model) claim(p *pod, former, present []netip.Addr) {
	for _, a := range former {
		if !slices.Contains(present, a) {
			m.settle(a, p, false)
		}
	}
	for _, a := range present {
		m.settle(a, p, true)
	}
}

// settle finds the owner of an address after a pod's claim to it, or what speaks for the claim, changed.
func (m *Model) settle(a netip.Addr, p *pod, claimed bool) {
	c := m.claims[a]
	if claimed && (c.owner == nil || c.owner == p) && len(c.others) == 0 && m.hosts[a] == 0 {
		if c.owner == nil {
			m.claims[a] = claimants{owner: p}
			m.handOver(a, nil, p)
		}
		return
	}
	all := slices.DeleteFunc(append(slices.Clone(c.others), c.owner), func(q *pod) bool { return q == nil || q == p })
	if claimed {
		all = append(all, p)
	}
	var owner *pod
	if m.hosts[a] == 0 {
		for _, q := range all {
			if owner == nil || m.before(q, owner) {
				owner = q
			}
		}
	}
	others := slices.DeleteFunc(all, func(q *pod) bool { return q == owner })
	if owner == nil && len(others) == 0 {
		delete(m.claims, a)
	} else {
		m.claims[a] = claimants{owner, slices.Clip(others)}
	}
	if owner != c.owner {
		m.handOver(a, c.owner, owner)
	}
}

// handOver gives an address to another pod, or to none.
func (m *Model) handOver(a netip.Addr, from, to *pod) {
	if _, wasLocal := m.localAddrs[a]; from != nil {
		t := m.tables[familyOf(a)]
		t.changedHands[a] = t.changedHands[a] || wasLocal || to != nil && to.local
	}
	delete(m.localAddrs, a)
	if from != nil {
		from.owned = slices.DeleteFunc(from.owned, func(b netip.Addr) bool { return a == b })
		m.place(from)
	}
	m.tables[familyOf(a)].hold.reassign(a, from != nil)
	if to != nil {
		to.owned = append(to.owned, a)
		m.appear(a)
		m.place(to)
	}
}

// countHosts keeps count of the pods that name an address as their node's, and refuses it to pods.
func (m *Model) countHosts(addrs []netip.Addr, by int) {
	for _, a := range addrs {
		was := m.hosts[a] > 0
		if m.hosts[a] += by; m.hosts[a] <= 0 {
			delete(m.hosts, a)
		}
		if is := m.hosts[a] > 0; is == was {
			continue
		}
		if c, ok := m.claims[a]; ok {
			p := c.owner
			if p == nil {
				p = c.others[0]
			}
			m.settle(a, p, true)
		}
	}
}
