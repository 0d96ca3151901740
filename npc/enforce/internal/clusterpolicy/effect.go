package clusterpolicy

import (
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Effect is what the policies of a local pod may do to it.
type Effect struct {
	// Denied reports for each direction whether a policy may deny something.
	Denied [len(npc.Directions)]bool
	// Node reports for each tier whether one may deny packets to the pod's own node.
	Node [len(policy.Tiers)]bool
	// Baseline reports for each direction whether there are policies of the Baseline tier.
	Baseline [len(npc.Directions)]bool
}

// add adds what policies of a tier may do in a direction.
func (e *Effect) add(policies []*enforced, tier policy.Tier, d npc.Direction) {
	for _, p := range policies {
		e.Denied[d] = e.Denied[d] || p.Denies(d)
		e.Node[tier] = e.Node[tier] || d == npc.Egress && p.DeniesNode()
		e.Baseline[d] = e.Baseline[d] || tier == policy.Baseline
	}
}

// effectOfAny returns what policies may do to a pod that any of them may select, because its labels are not known. No
// list is for it, so that nothing allows it what one of them may deny.
func effectOfAny(policies map[string]*enforced) (e Effect) {
	for _, p := range policies {
		for d := range npc.Directions {
			e.Denied[d], e.Baseline[d] = true, true
		}
		e.Node[p.Tier] = e.Node[p.Tier] || p.DeniesNode()
	}
	return e
}

// counts are how many local pods a policy may deny something, and how many it may deny their node.
type counts struct {
	denied [len(npc.Directions)]int
	node   int
}

// add adds n pods of an effect.
func (c *counts) add(e Effect, n int) {
	for d, is := range e.Denied {
		if is {
			c.denied[d] += n
		}
	}
	if e.DeniesNode([len(npc.Directions)]bool{}) {
		c.node += n
	}
}

// DeniesNode reports whether policies may deny the pod its node. One that NetworkPolicies isolate for egress never meets
// the Baseline tier.
func (e Effect) DeniesNode(isolated [len(npc.Directions)]bool) bool {
	return e.Node[policy.Admin] || e.Node[policy.Baseline] && !isolated[npc.Egress]
}

// closed are the sets of the local pods whose packets to this node are dropped. They are there while some may be denied
// their node.
type closed [len(npc.Families)]*dataplane.Set

// follow makes the sets desired if they are needed. It reports whether they were not there.
func (c *closed) follow(tables [len(npc.Families)]*dataplane.Table, needed bool) bool {
	if c[0] != nil || !needed {
		return false
	}
	for f, t := range tables {
		c[f] = t.Sets.AddClosed("local pods whose packets to this node are dropped")
	}
	return true
}

// prune drops the sets if they are not needed any more.
func (c *closed) prune(needed func() bool) {
	if c[0] == nil || needed() {
		return
	}
	for f, s := range c {
		s.Drop()
		c[f] = nil
	}
}
