package reachability

import (
	"maps"
	"math/big"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// maxDomains is how many domain names are evaluated.
const maxDomains = 1024

// Domains returns an address for each domain name that a policy names, and for some more names, other than some
// addresses; nil if there are none.
// Which addresses a name has is not known: these are of the largest range that no policy distinguishes, as most outside
// are, and no pod and no node has them.
func Domains(other []netip.Addr, more []string, of ...*cluster.View) map[netip.Addr][]string {
	found := map[string]bool{}
	for _, name := range more {
		found[name] = true
	}
	for _, v := range of {
		for r := range cluster.Rules(v) {
			for _, p := range r.Peers {
				if p.Name != "" {
					found[p.Name] = true
				}
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	names, free := slices.Sorted(maps.Keys(found)), newOutside(other, of)
	out := map[netip.Addr][]string{}
	for _, name := range names[:min(len(names), maxDomains)] {
		if a, ok := free.next(!free.pods[false] && free.pods[true]); ok {
			out[a] = []string{name}
		}
	}
	return out
}

// Outside returns an address of each family that pods have, as most outside are, other than some addresses.
func Outside(v *cluster.View, other []netip.Addr) (out []netip.Addr) {
	free := newOutside(other, []*cluster.View{v})
	for _, is6 := range []bool{false, true} {
		if !free.pods[is6] {
			continue
		}
		if a, ok := free.next(is6); ok {
			out = append(out, a)
		}
	}
	return out
}

// outside finds addresses of the largest ranges that no policy distinguishes.
type outside struct {
	of     []*cluster.View
	taken  map[netip.Addr]bool
	pods   map[bool]bool          // whether pods have addresses of IPv6, and of IPv4
	ranges map[bool]ipblock.Range // what is left of the largest range of IPv6, and of IPv4
}

func newOutside(other []netip.Addr, of []*cluster.View) *outside {
	o := &outside{of: of, taken: map[netip.Addr]bool{}, pods: map[bool]bool{}, ranges: map[bool]ipblock.Range{}}
	for _, a := range other {
		o.taken[a] = true
	}
	var blocks []ipblock.Block
	for _, v := range of {
		blocks = append(blocks, policy.Blocks(cluster.Rules(v))...)
		for _, p := range v.Pods {
			for _, a := range p.Claims() {
				o.taken[a], o.pods[a.Is6()] = true, true
			}
		}
	}
	ranges := ipblock.NewClasses(blocks).Ranges()
	for is6, first := range map[bool]string{false: "2.0.0.1", true: "2000::1"} { // public, and of no well-known server
		in := largest(ranges, is6)
		if a := netip.MustParseAddr(first); in.First.Less(a) && a.Less(in.Last) {
			in.First = a
		}
		o.ranges[is6] = in
	}
	return o
}

// next returns an address that no pod and no node has, each time another one.
func (o *outside) next(is6 bool) (netip.Addr, bool) {
	in := o.ranges[is6]
	a, ok := in.Unicast(func(a netip.Addr) bool {
		return !o.taken[a] && !a.IsUnspecified() && !slices.ContainsFunc(o.of, func(v *cluster.View) bool {
			return v.IsNodes(a) || len(v.NodesAt(a)) > 0 || len(v.Stale(a, "")) > 0
		})
	})
	if ok {
		o.taken[a], in.First = true, a
		o.ranges[is6] = in
	}
	return a, ok
}

// largest returns the largest range of a family.
func largest(ranges []ipblock.Range, is6 bool) (out ipblock.Range) {
	most := new(big.Int)
	for _, r := range ranges {
		size := new(big.Int).Sub(new(big.Int).SetBytes(r.Last.AsSlice()), new(big.Int).SetBytes(r.First.AsSlice()))
		if r.First.Is6() == is6 && (!out.First.IsValid() || size.Cmp(most) > 0) {
			out, most = r, size
		}
	}
	return out
}
