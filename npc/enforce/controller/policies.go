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

// conflicting reports for each direction whether an address that a local pod owns is claimed by another local pod that
// a policy may deny something: the owner is ambiguous, so nothing is allowed.
func (x policies) conflicting(a netip.Addr) (by [len(npc.Directions)]bool) {
	for _, q := range x.addresses.Others(a) {
		for d, is := range x.of(q) {
			by[d] = by[d] || is
		}
	}
	return by
}
