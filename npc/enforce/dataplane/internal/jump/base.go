package jump

import (
	"cmp"

	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
)

// ToEnd returns the jumps by which connections between a pod and its node end, if any connections are to end at all.
func ToEnd(b *rules.Base) (jumps []*Jump) {
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
