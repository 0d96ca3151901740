// Package ipowner decides which of the pods that claim an address owns it, and reports claims that contradict each
// other. It knows nothing about policies or the kernel.
//
//	t := ipowner.Table[*pod]{Before: startedLater, Refused: isNodeAddress}
//	from, to := t.Resolve(addr, p, true) // p claims addr: the owner before and after
package ipowner

import (
	"net/netip"
	"slices"
)

// Table holds the pods that claim each address, and its owner. Several pods may claim one address, because addresses
// are used again before the end of the former pod is known; at most one owns it. P identifies a pod; its zero value is
// no pod.
type Table[P comparable] struct {
	// Before reports whether a has precedence over b if both claim an address.
	Before func(a, b P) bool
	// Refused reports whether a pod cannot own an address.
	Refused func(netip.Addr, P) bool

	claimants map[netip.Addr]claimants[P]
}

// claimants are the pods that claim one address.
type claimants[P comparable] struct {
	owner  P
	others []P
}

// Owner returns the pod that owns an address.
func (t *Table[P]) Owner(a netip.Addr) P { return t.claimants[a].owner }

// Others returns the pods that claim an address without owning it. The caller must not change the slice.
func (t *Table[P]) Others(a netip.Addr) []P { return t.claimants[a].others }

// Resolve adds or withdraws a pod's claim, or decides again after a change of the pod. It returns the owner of the
// address before and after.
func (t *Table[P]) Resolve(a netip.Addr, p P, claimed bool) (from, to P) {
	var none P
	c := t.claimants[a]
	if claimed && (c.owner == none || c.owner == p) && len(c.others) == 0 && !t.Refused(a, p) {
		if c.owner == none {
			t.put(a, claimants[P]{owner: p})
		}
		return c.owner, p
	}
	all := slices.DeleteFunc(append(slices.Clone(c.others), c.owner), func(q P) bool { return q == none || q == p })
	if claimed {
		all = append(all, p)
	}
	return c.owner, t.choose(a, all)
}

// Review decides again about all claims to an address. It returns the owner of the address before and after.
func (t *Table[P]) Review(a netip.Addr) (from, to P) {
	var none P
	c, ok := t.claimants[a]
	if !ok {
		return none, none
	}
	all := slices.DeleteFunc(append(slices.Clone(c.others), c.owner), func(q P) bool { return q == none })
	return c.owner, t.choose(a, all)
}

// choose gives an address to one of the pods that claim it.
func (t *Table[P]) choose(a netip.Addr, all []P) (owner P) {
	var none P
	owner = Choose(all, func(q P) bool { return t.Refused(a, q) }, t.Before)
	if len(all) == 0 {
		delete(t.claimants, a)
		return none
	}
	others := slices.DeleteFunc(all, func(q P) bool { return q == owner })
	t.put(a, claimants[P]{owner, slices.Clip(others)})
	return owner
}

// Choose returns which of the pods that claim an address owns it, or the zero value if all are refused. before reports
// whether a has precedence over b.
func Choose[P comparable](all []P, refused func(P) bool, before func(a, b P) bool) (owner P) {
	var none P
	for _, q := range all {
		if !refused(q) && (owner == none || before(q, owner)) {
			owner = q
		}
	}
	return owner
}

func (t *Table[P]) put(a netip.Addr, c claimants[P]) {
	if t.claimants == nil {
		t.claimants = map[netip.Addr]claimants[P]{}
	}
	t.claimants[a] = c
}
