package span

import (
	"iter"
	"net/netip"
	"slices"
)

// addresses are the pods by their addresses.
type addresses struct {
	claims map[netip.Addr][]*pod // those that claim an address
	hosts  map[netip.Addr][]*pod // those that name it as their node's
}

func newAddresses() addresses {
	return addresses{claims: map[netip.Addr][]*pod{}, hosts: map[netip.Addr][]*pod{}}
}

func (x *addresses) add(p *pod) {
	for _, a := range p.claims {
		x.claims[a] = append(x.claims[a], p)
	}
	for _, a := range p.hosts {
		x.hosts[a] = append(x.hosts[a], p)
	}
}

func (x *addresses) remove(p *pod) {
	without := func(m map[netip.Addr][]*pod, addrs []netip.Addr) {
		for _, a := range addrs {
			l := m[a]
			i := slices.Index(l, p)
			last := len(l) - 1
			l[i], l[last] = l[last], nil
			if m[a] = l[:last]; last == 0 {
				delete(m, a)
			}
		}
	}
	without(x.claims, p.claims)
	without(x.hosts, p.hosts)
}

// near yields the other pods that claim an address of some, or name it as their node's. Wherever a pod that claims these is needed for itself, they are
// needed to tell whose the address is. A pod may come twice.
func (x *addresses) near(p *pod, claims []netip.Addr) iter.Seq[*pod] {
	return func(yield func(*pod) bool) {
		for _, a := range claims {
			for _, q := range x.claims[a] {
				if q != p && !yield(q) {
					return
				}
			}
			for _, q := range x.hosts[a] {
				if q != p && !yield(q) {
					return
				}
			}
		}
	}
}

// needing yields the other pods that claim an address which a pod claims or names as its node's: wherever one of them is needed for itself, the pod
// is. A pod may come twice.
func (x *addresses) needing(p *pod) iter.Seq[*pod] {
	return func(yield func(*pod) bool) {
		for _, addrs := range [][]netip.Addr{p.claims, p.hosts} {
			for _, a := range addrs {
				for _, q := range x.claims[a] {
					if q != p && !yield(q) {
						return
					}
				}
			}
		}
	}
}
