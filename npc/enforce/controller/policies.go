package controller

import (
	"net/netip"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/clusterpolicy"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/networkpolicy"
)

// policies are those of all kinds.
type policies struct {
	isolation *networkpolicy.Isolation
	tiers     *clusterpolicy.Tiers
	addresses *index.Addresses
}

// of returns the directions of a pod's packets that a policy may deny.
func (x policies) of(p *index.Pod) [len(npc.Directions)]bool {
	is := x.isolation.Of(p)
	for d, denied := range x.tiers.Of(p).Denied {
		is[d] = is[d] || denied
	}
	return is
}

// mayDeny reports whether policies may deny packets of a local pod's address.
func (x policies) mayDeny(a netip.Addr) bool {
	p := x.addresses.Owner(a)
	return p != nil && (x.tiers.Any() || x.of(p) != [len(npc.Directions)]bool{})
}

// contest returns what policies may do to the local pods that claim an address and do not own it.
func (x policies) contest(a netip.Addr) (c index.Contest) {
	for _, q := range x.addresses.Others(a) {
		for d, is := range x.of(q) {
			c.Denied[d] = c.Denied[d] || is
		}
		c.Node = c.Node || x.tiers.Of(q).DeniesNode(x.isolation.Of(q))
	}
	return c
}

// contested returns the contests of a pod's addresses; nil if there are none.
func (x policies) contested(p *index.Pod) (out map[netip.Addr]index.Contest) {
	for _, a := range p.Owned() {
		if c := x.contest(a); c != (index.Contest{}) {
			if out == nil {
				out = map[netip.Addr]index.Contest{}
			}
			out[a] = c
		}
	}
	return out
}
