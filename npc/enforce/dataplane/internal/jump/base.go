package jump

import (
	"cmp"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
)

// Of returns the jumps to the chains of a base: for packets that pass the node, for those between local pods and their
// node, and for answers of resolvers on the node.
func Of(b *rules.Base, f npc.Family) []*Jump {
	jumps := []*Jump{New(naming.HookChain, naming.ForwardChain, b.Through()),
		New(naming.NodeHookChain, naming.EgressChain, rules.FormerToNode(f))}
	for _, r := range b.ToNode(f) {
		jumps = append(jumps, New(naming.NodeHookChain, naming.InputChain, r))
	}
	jumps = append(jumps, toEnd(b)...)
	udp, tcp := rules.FromNodeDNS(f)
	return append(jumps, New(naming.NodeOutHookChain, naming.DNSChain, udp),
		New(naming.NodeOutHookChain, naming.DNSHoldChain, tcp))
}

// Serves reports whether the chains of a base need the jump.
func (j *Jump) Serves(b *rules.Base) bool {
	switch j.leadsTo {
	case naming.ForwardChain:
		return true
	case naming.EgressChain: // it was there before
		return false
	case naming.TerminateChain:
		return b.EvaluatesNode() && b.TerminateMark != 0
	case naming.DNSChain, naming.DNSHoldChain:
		return b.Names != "" && b.DNSResolvers
	}
	return b.EvaluatesNode()
}

// toEnd returns the jumps by which connections between a pod and its node end, if any connections are to end at all.
func toEnd(b *rules.Base) (jumps []*Jump) {
	mark := cmp.Or(b.TerminateMark, b.LateMark)
	if mark == 0 {
		return nil
	}
	jumps = append(jumps, New(naming.NodeHookChain, naming.TerminateChain, mark.ToNode()))
	for _, r := range mark.FromNode() {
		jumps = append(jumps, New(naming.NodeOutHookChain, naming.TerminateChain, r))
	}
	return jumps
}
