package npc

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/npc/claims"
	"github.com/weave-npc/weave-npc/npc/queue"
)

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

// refused reports whether a pod cannot own an address: no pod owns one of this node's, and a pod of another node none that
// some pod's status.hostIPs contains. What other objects say takes no address from a local pod.
func (m *Model) refused(a netip.Addr, p *pod) bool {
	_, own := m.nodeAddrs[a]
	return own || p.Node != m.NodeName && m.hosts[a] > 0
}

// beforeBoot reports whether the status of a pod of this node was reported before the node was started.
func (m *Model) beforeBoot(p *Pod) bool {
	return p.Node == m.NodeName && m.Booted != nil && p.ReportedBefore(m.Booted())
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
	switch from, to := m.claims.Settle(a, p, claimed); {
	case from != to:
		m.handOver(a, from, to)
	case to != nil && to != p && p.Node == m.NodeName:
		m.placeOne(to) // p contests the address, or does not any more
	}
}

// handOver gives an address to another pod, or to none.
func (m *Model) handOver(a netip.Addr, from, to *pod) {
	m.reassigned(a, from, to)
	delete(m.localAddrs, a)
	if from != nil {
		from.owned = slices.DeleteFunc(from.owned, func(b netip.Addr) bool { return a == b })
		m.placeOne(from)
	}
	m.tables[familyOf(a)].hold.reassign(a, from != nil)
	if to != nil {
		to.owned = append(to.owned, a)
		m.gates.appear(a)
		m.placeOne(to)
	}
}

// contested reports for each direction whether another local pod that is isolated claims an address that a local pod owns:
// whose it is cannot be told, so that nothing is allowed.
func (m *Model) contested(a netip.Addr) (by [len(directions)]bool) {
	for _, q := range m.claims.Others(a) {
		for d := range directions {
			by[d] = by[d] || q.local && q.isolated[d]
		}
	}
	return by
}

// countHosts keeps count of the pods that name an address as their node's, which pods of other nodes cannot own.
func (m *Model) countHosts(addrs []netip.Addr, by int) {
	for _, a := range addrs {
		was := m.hosts[a] > 0
		if m.hosts[a] += by; m.hosts[a] <= 0 {
			delete(m.hosts, a)
		}
		if is := m.hosts[a] > 0; is != was {
			m.review(a)
		}
	}
}

// SetNodeAddrs replaces the addresses that this node has itself, which no pod can own.
func (m *Model) SetNodeAddrs(addrs []netip.Addr) {
	m.change(queue.Event{Kind: queue.Pods, Key: "node-addresses", Apply: func() {
		before := m.nodeAddrs
		m.nodeAddrs = make(map[netip.Addr]struct{}, len(addrs))
		for _, a := range addrs {
			m.nodeAddrs[a] = struct{}{}
		}
		for a := range before {
			if _, stays := m.nodeAddrs[a]; !stays {
				m.review(a)
			}
		}
		for a := range m.nodeAddrs {
			if _, was := before[a]; !was {
				m.review(a)
			}
		}
	}})
}

// review settles the owner of an address again after the reasons to refuse it changed.
func (m *Model) review(a netip.Addr) {
	if from, to := m.claims.Review(a); from != to {
		m.handOver(a, from, to)
	}
	for _, q := range m.claims.Others(a) {
		m.countPending(q)
	}
	if owner := m.claims.Owner(a); owner != nil {
		m.countPending(owner)
	}
}

// Conflicts returns the claims of local pods to addresses that something contradicts, in order.
func (m *Model) Conflicts() []claims.Conflict {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []claims.Conflict
	for _, ns := range m.namespaces {
		for p := range ns.local {
			for _, a := range p.Claims() {
				out = m.conflicts(p, a, out)
			}
		}
	}
	slices.SortFunc(out, func(a, b claims.Conflict) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Pod.String(), b.Pod.String()),
			cmp.Compare(a.Other.String(), b.Other.String()))
	})
	return out
}

// conflicts adds what contradicts a local pod's claim to an address. Of two local pods, the owner's claim is contradicted.
func (m *Model) conflicts(p *pod, a netip.Addr, out []claims.Conflict) []claims.Conflict {
	if _, own := m.nodeAddrs[a]; own {
		return append(out, claims.Conflict{Addr: a, Kind: claims.OfNode, Pod: p.ref()})
	}
	if m.claims.Owner(a) != p {
		return out
	}
	if m.hosts[a] > 0 {
		if q := m.hostedAt(a); q != nil {
			out = append(out, claims.Conflict{Addr: a, Kind: claims.HostIPs, Pod: p.ref(), Other: q.ref()})
		}
	}
	for _, q := range m.claims.Others(a) {
		kind := claims.RemotePod
		if q.local {
			kind = claims.LocalPod
		}
		if !q.Deleting && !p.Deleting {
			out = append(out, claims.Conflict{Addr: a, Kind: kind, Pod: p.ref(), Other: q.ref()})
		}
	}
	return out
}

// hostedAt returns the first pod, by name, that names an address as its node's.
func (m *Model) hostedAt(a netip.Addr) (first *pod) {
	for _, ns := range m.namespaces {
		for _, p := range ns.pods {
			if slices.Contains(p.HostAddrs, a) && (first == nil || p.String() < first.String()) {
				first = p
			}
		}
	}
	return first
}

func (p *pod) ref() claims.Ref { return claims.Ref{Namespace: p.Namespace, Name: p.Name, UID: p.UID} }
