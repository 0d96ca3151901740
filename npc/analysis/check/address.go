package check

import (
	"net/netip"
	"slices"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc/analysis/check/expectation"
	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// place is a set of free addresses, of no pod and no node, that policies do not distinguish. It has two of them, or the
// same one twice if there is no other.
type place struct{ first, second netip.Addr }

// places returns one for each class of free addresses that are wanted. Wanted must be the same for all addresses of a
// class.
func (p *Prover) places(blocks []ipblock.Block, wanted func(netip.Addr) bool) (out []place) {
	classes := ipblock.NewClasses(blocks)
	known := map[int]int{} // class -> its place
	for _, r := range classes.Ranges() {
		if !wanted(r.First) {
			continue
		}
		free := p.free(r)
		if len(free) == 0 {
			continue
		}
		class := classes.Of(r.First)
		if at, ok := known[class]; ok {
			if out[at].first == out[at].second {
				out[at].second = free[0]
			}
			continue
		}
		known[class] = len(out)
		out = append(out, place{free[0], free[len(free)-1]})
	}
	return out
}

// ranges returns addresses as ranges, in order.
func ranges(addrs []netip.Addr) (out []ipblock.Range) {
	for _, a := range slices.Compact(slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare)) {
		if n := len(out); n > 0 && out[n-1].Last.Next() == a {
			out[n-1].Last = a
			continue
		}
		out = append(out, ipblock.Range{First: a, Last: a})
	}
	return out
}

// free returns two addresses of a range that no pod and no node has, or fewer if there are no more: if possible not the
// first of the range, which may be that of a network.
func (p *Prover) free(r ipblock.Range) (out []netip.Addr) {
	for a := r.First; a.IsValid() && !r.Last.Less(a) && len(out) < 3; a = a.Next() {
		if at, taken := p.takenAt(a); taken {
			a = p.taken[at].Last
		} else if !p.isNodes(a) && (len(p.view.Learned[a]) == 0 || r.First == r.Last) {
			out = append(out, a)
		}
	}
	if len(out) > 2 {
		return out[1:]
	}
	return out
}

// setDomains has addresses stand for the domain names of policies and of expectations.
func (p *Prover) setDomains(expectations []expectation.Expectation) {
	var names []string
	for _, e := range expectations {
		for _, t := range e.To {
			if t.Domain != "" {
				names = append(names, t.Domain)
			}
		}
	}
	learned := reachability.Domains(nil, names, p.view)
	if learned == nil {
		return
	}
	p.view = cluster.WithLearned(p.view, learned)
	for a, names := range learned {
		p.domains[names[0]] = a
	}
}

// withAddresses returns a subject with the address of each domain name.
func (p *Prover) withAddresses(s expectation.Subject) (expectation.Subject, error) {
	out := slices.Clone(s)
	for i, t := range s {
		if t.Domain == "" {
			continue
		}
		a, ok := p.domains[t.Domain]
		if !ok {
			return nil, errors.Errorf("too many domain names: %s is not checked", t.Domain)
		}
		out[i].Blocks = []ipblock.Block{{CIDR: netip.PrefixFrom(a, a.BitLen())}}
	}
	return out, nil
}

// takenAt returns the range of addresses of pods that has an address.
func (p *Prover) takenAt(a netip.Addr) (int, bool) {
	return slices.BinarySearchFunc(p.taken, a, func(r ipblock.Range, a netip.Addr) int {
		switch {
		case r.Last.Less(a):
			return -1
		case a.Less(r.First):
			return 1
		}
		return 0
	})
}

func (p *Prover) isNodes(a netip.Addr) bool { return p.view.IsNodes(a) || len(p.view.NodesAt(a)) > 0 }

// nowhere returns ranges without addresses that anybody has for others: multicast, broadcast, loopback, link-local of
// IPv6, and mapped IPv4.
func nowhere() (out []ipblock.Block) {
	for _, cidr := range []string{"0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "::/127", "::ffff:0:0/96", "fe80::/10",
		"ff00::/8"} {
		out = append(out, ipblock.Block{CIDR: netip.MustParsePrefix(cidr)})
	}
	return out
}

// inBlocks reports whether an address is in one of some blocks.
func inBlocks(blocks []ipblock.Block, a netip.Addr) bool {
	return a.IsValid() && slices.ContainsFunc(blocks, func(b ipblock.Block) bool {
		in, _ := b.Contains(a)
		return in
	})
}
