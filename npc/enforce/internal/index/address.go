package index

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster/ipowner"
)

// Addresses records which pod owns which address.
type Addresses struct {
	node   string
	claims ipowner.Table[*Pod]
	// hosts counts the pods that name an address as their node's.
	hosts map[netip.Addr]int
	// ofNode are the addresses of this node.
	ofNode map[netip.Addr]struct{}
	// local are the addresses that local pods own.
	local map[netip.Addr]struct{}
}

func newAddresses(node string) *Addresses {
	x := &Addresses{node: node, hosts: map[netip.Addr]int{}, local: map[netip.Addr]struct{}{}}
	x.claims = ipowner.Table[*Pod]{Refused: x.Refused,
		Before: func(a, b *Pod) bool { return npc.OwnsBefore(&a.Pod, &b.Pod, node) }}
	return x
}

// Owner returns the pod that owns an address; nil if there is none.
func (x *Addresses) Owner(a netip.Addr) *Pod { return x.claims.Owner(a) }

// Others returns the pods that claim an address without owning it.
func (x *Addresses) Others(a netip.Addr) []*Pod { return x.claims.Others(a) }

// IsLocal reports whether an address is a local pod's.
func (x *Addresses) IsLocal(a netip.Addr) bool {
	_, ok := x.local[a]
	return ok
}

// Local returns the addresses that local pods own. The caller may keep the map.
func (x *Addresses) Local() map[netip.Addr]struct{} { return maps.Clone(x.local) }

// AnyLocal reports whether a local pod owns an address.
func (x *Addresses) AnyLocal() bool { return len(x.local) > 0 }

// IsOfNode reports whether an address is this node's own.
func (x *Addresses) IsOfNode(a netip.Addr) bool {
	_, own := x.ofNode[a]
	return own
}

// isNode reports whether an address is a node's.
func (x *Addresses) isNode(a netip.Addr) bool {
	_, own := x.ofNode[a]
	return own || x.hosts[a] > 0
}

// Refused reports whether a pod cannot own an address: no pod owns one of this node's, and a pod of another node none
// that some pod's status.hostIPs contains. What other objects say takes no address from a local pod.
func (x *Addresses) Refused(a netip.Addr, p *Pod) bool {
	_, own := x.ofNode[a]
	return own || p.Node != x.node && x.hosts[a] > 0
}

// claim replaces a pod's former claims by its present ones and resolves the owners of the addresses.
func (x *Addresses) claim(c *Change, p *Pod, former, present []netip.Addr) {
	for _, a := range former {
		if !slices.Contains(present, a) {
			x.resolve(c, a, p, false)
		}
	}
	for _, a := range present {
		x.resolve(c, a, p, true)
	}
}

// resolve finds the owner of an address after a pod's claim to it, or what speaks for the claim, changed.
func (x *Addresses) resolve(c *Change, a netip.Addr, p *Pod, claimed bool) {
	switch from, to := x.claims.Resolve(a, p, claimed); {
	case from != to:
		x.transfer(c, a, from, to)
	case to != nil && to != p && p.Node == x.node:
		c.affects(to) // p contests the address, or does not any more
	}
}

// transfer gives an address to another pod, or to none.
func (x *Addresses) transfer(c *Change, a netip.Addr, from, to *Pod) {
	t := Transfer{Addr: a, Family: npc.FamilyOf(a), Entry: ipset.Addr(a), From: from, To: to, WasLocal: x.IsLocal(a)}
	delete(x.local, a)
	if from != nil {
		from.owned = slices.DeleteFunc(from.owned, func(b netip.Addr) bool { return a == b })
		t.WasPeer = from.withdraw(a)
		c.affects(from)
	}
	if to != nil {
		to.owned = append(to.owned, a)
		c.affects(to)
	}
	c.Transfers = append(c.Transfers, t)
}

// countHosts counts pods that name addresses as their node's, which pods of other nodes cannot own.
func (x *Addresses) countHosts(c *Change, addrs []netip.Addr, by int) {
	for _, a := range addrs {
		was := x.hosts[a] > 0
		if x.hosts[a] += by; x.hosts[a] <= 0 {
			delete(x.hosts, a)
		}
		if is := x.hosts[a] > 0; is != was {
			x.review(c, a)
		}
	}
}

// setOfNode replaces the addresses that this node has itself, which no pod can own.
func (x *Addresses) setOfNode(c *Change, addrs []netip.Addr) {
	before := x.ofNode
	x.ofNode = make(map[netip.Addr]struct{}, len(addrs))
	for _, a := range addrs {
		x.ofNode[a] = struct{}{}
	}
	for a := range before {
		if _, stays := x.ofNode[a]; !stays {
			x.review(c, a)
		}
	}
	for a := range x.ofNode {
		if _, was := before[a]; !was {
			x.review(c, a)
		}
	}
}

// review resolves the owner of an address again after the reasons to refuse it changed.
func (x *Addresses) review(c *Change, a netip.Addr) {
	if from, to := x.claims.Review(a); from != to {
		x.transfer(c, a, from, to)
	}
	for _, q := range x.claims.Others(a) {
		c.affects(q)
	}
	if owner := x.claims.Owner(a); owner != nil {
		c.affects(owner)
	}
}

// Conflicting returns the owners of addresses that a pod of this node claims and does not own.
func (x *Addresses) Conflicting(p *Pod) (owners []*Pod) {
	if p.Node != x.node || len(p.owned) == len(p.Claims()) {
		return nil
	}
	for _, a := range p.Claims() {
		if owner := x.claims.Owner(a); owner != nil && owner != p {
			owners = append(owners, owner)
		}
	}
	return owners
}

// conflicts adds what contradicts a local pod's claim to an address. Of two local pods, the owner's claim is
// contradicted. hostedAt returns a pod that names an address as its node's.
func (x *Addresses) conflicts(p *Pod, a netip.Addr, hostedAt func(netip.Addr) *Pod,
	out []ipowner.Conflict) []ipowner.Conflict {
	if _, own := x.ofNode[a]; own {
		return append(out, ipowner.Conflict{Addr: a, Kind: ipowner.OfNode, Pod: p.ref()})
	}
	if x.claims.Owner(a) != p {
		return out
	}
	if x.hosts[a] > 0 {
		if q := hostedAt(a); q != nil {
			out = append(out, ipowner.Conflict{Addr: a, Kind: ipowner.HostIPs, Pod: p.ref(), Other: q.ref()})
		}
	}
	for _, q := range x.claims.Others(a) {
		kind := ipowner.RemotePod
		if q.local {
			kind = ipowner.LocalPod
		}
		if !q.Deleting && !p.Deleting {
			out = append(out, ipowner.Conflict{Addr: a, Kind: kind, Pod: p.ref(), Other: q.ref()})
		}
	}
	return out
}

// sortConflicts sorts conflicts by address, kind and pods.
func sortConflicts(all []ipowner.Conflict) {
	slices.SortFunc(all, func(a, b ipowner.Conflict) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Pod.String(), b.Pod.String()),
			cmp.Compare(a.Other.String(), b.Other.String()))
	})
}
