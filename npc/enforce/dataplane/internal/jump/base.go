package jump

import (
	"cmp"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
)

// ToNode returns the jumps for packets between local pods and their node.
func ToNode(b *rules.Base, f npc.Family) []*Jump {
	jumps := []*Jump{New(naming.NodeHookChain, naming.EgressChain, rules.FormerToNode(f))}
	for _, r := range b.ToNode(f) {
		jumps = append(jumps, New(naming.NodeHookChain, naming.InputChain, r))
	}
	return append(jumps, toEnd(b)...)
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
