package explain

import (
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/objectkey"
)

// end is an end of a flow with its pod, which is nil if it has none.
type end struct {
	flow.End
	pod *npc.Pod
}

// String returns the end as a sentence names it.
func (e end) String() string {
	if e.pod != nil {
		return podName(e.pod)
	}
	return e.End.String()
}

func podName(p *npc.Pod) string { return objectkey.Of(p.Namespace, p.Name) }
