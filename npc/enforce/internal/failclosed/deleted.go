package failclosed

import (
	"net/netip"
	"strings"
	"time"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
)

// deletedFor is how long the address of an isolated pod stays closed after its object was deleted.
const deletedFor = 10 * time.Minute

// deletedWord ends the comment of the entry that closes the address of a deleted pod.
const deletedWord = " deleted"

// deletedPods records the addresses of isolated pods whose objects went before they had finished.
type deletedPods struct {
	node  string
	index *index.Index
	pods  map[netip.Addr]deletedPod
	// recalled is set for a family once the kernel was asked about pods that were deleted before.
	recalled [len(npc.Families)]bool
}

type deletedPod struct {
	pod      string
	isolated [len(npc.Directions)]bool
	until    time.Time
}

// put records an address of a deleted pod, if a policy isolated the pod.
func (v *deletedPods) put(a netip.Addr, pod string, isolated [len(npc.Directions)]bool, now time.Time) {
	if isolated != [len(npc.Directions)]bool{} {
		v.pods[a] = deletedPod{pod, isolated, now.Add(deletedFor)}
	}
}

// expire forgets the pods that were deleted long ago.
func (v *deletedPods) expire(now time.Time) {
	for a, p := range v.pods {
		if !now.Before(p.until) {
			delete(v.pods, a)
		}
	}
}

func (v *deletedPods) deadlines() (out []time.Time) {
	for _, p := range v.pods {
		out = append(out, p.until)
	}
	return out
}

// recall finds the pods that the kernel still has and that have no object. failClosedSets are the sets of the
// fail-closed filter, and allowed those of the local pods that nothing isolates, by direction.
func (v *deletedPods) recall(t *dataplane.Table, failClosedSets, allowed []*dataplane.Set, now time.Time) {
	if v.recalled[t.Family] {
		return
	}
	v.recalled[t.Family] = true
	there := v.podsOfNode()
	for e, st := range t.Local.States() {
		comment, isolated, recorded := parseRecord(st.Have.Comment)
		id, name, ours := strings.Cut(comment, " ")
		if !st.Exists || st.Wanted || !ours || there[id] || v.index.Addresses.Owner(e.Prefix.Addr()) != nil {
			continue
		}
		for d, s := range allowed {
			if !recorded {
				isolated[d] = !s.State(e).Exists || t.Sets.Listed(npc.Direction(d), e)
			}
		}
		v.put(e.Prefix.Addr(), name, isolated, now)
	}
	for d, s := range failClosedSets {
		for e, st := range s.States() {
			name, ok := strings.CutSuffix(st.Have.Comment, deletedWord)
			a := e.Prefix.Addr()
			_, _, recorded := parseRecord(t.Local.State(e).Have.Comment)
			if !st.Exists || !ok || recorded || v.index.Addresses.Owner(a) != nil {
				continue // what is recorded is newer
			}
			isolated := v.pods[a].isolated
			isolated[d] = true
			v.put(a, name, isolated, now)
		}
	}
}

// podsOfNode returns the IDs of all pods of this node that there are, finished ones too.
func (v *deletedPods) podsOfNode() map[string]bool {
	ids := map[string]bool{}
	for p := range v.index.Pods() {
		if p.Node == v.node {
			ids[p.ID()] = true
		}
	}
	return ids
}
