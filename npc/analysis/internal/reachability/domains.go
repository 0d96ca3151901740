package reachability

import (
	"maps"
	"math/big"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// maxDomains is how many domain names are evaluated.
const maxDomains = 1024

// Domains returns an address for each domain name that a policy names, and for some more names; nil if there are none.
// Which addresses a name has is not known: these are of the largest range that no policy distinguishes, as most outside
// are, and no pod and no node has them.
func Domains(more []string, of ...*cluster.View) map[netip.Addr][]string {
	found, taken, is6 := map[string]bool{}, map[netip.Addr]bool{}, true
	var blocks []ipblock.Block
	for _, name := range more {
		found[name] = true
	}
	for _, v := range of {
		for r := range cluster.Rules(v) {
			for _, p := range r.Peers {
				if p.Name != "" {
					found[p.Name] = true
				}
				if p.Block != nil {
					blocks = append(blocks, *p.Block)
				}
			}
		}
		for _, p := range v.Pods {
			for _, a := range p.Claims() {
				taken[a], is6 = true, is6 && a.Is6()
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(found))
	out, in := map[netip.Addr][]string{}, largest(ipblock.NewClasses(blocks).Ranges(), is6 && len(taken) > 0)
	for _, first := range []string{"1.0.0.1", "2000::1"} { // before these, no address is unicast and public
		if a := netip.MustParseAddr(first); a.BitLen() == in.First.BitLen() && in.First.Less(a) && a.Less(in.Last) {
			in.First = a
		}
	}
	for _, name := range names[:min(len(names), maxDomains)] {
		a, ok := in.Unicast(func(a netip.Addr) bool {
			return !taken[a] && !a.IsUnspecified() && !slices.ContainsFunc(of, func(v *cluster.View) bool {
				return v.IsNodes(a) || len(v.NodesAt(a)) > 0
			})
		})
		if ok {
			out[a], taken[a], in.First = []string{name}, true, a
		}
	}
	return out
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
