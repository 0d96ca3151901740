package explain

import (
	"strings"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// end is an end of a flow with its pod, which is nil if it has none.
type end struct {
	flow.End
	pod *npc.Pod
}

// String returns the end as a sentence names it.
func (e end) String() string {
	if e.pod != nil {
		return e.pod.Key()
	}
	return e.End.String()
}

// namespace returns the namespace of the end's pod, which may be one that could not be read; empty if it has none.
func (e end) namespace() string {
	if e.pod != nil {
		return e.pod.Namespace
	}
	namespace, _, _ := strings.Cut(e.Pod, "/")
	return namespace
}
