package controller

import (
	"cmp"
	"sort"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/objectkey"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// Retry has the rules and sets of a family planned again that the kernel rejected.
func (m *Controller) Retry(f traffic.Family) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tables[f].Retry()
}

// Rejected returns the policies of which the kernel does not take a rule, or a set that a rule needs, in order.
func (m *Controller) Rejected() []npc.InvalidPolicy {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[string]npc.InvalidPolicy{}
	reject := func(o *dataplane.Owner, why string) {
		found[o.String()] = npc.InvalidPolicy{Namespace: o.Namespace, Name: o.Name, UID: o.UID, Reason: why, Refused: true}
	}
	for _, t := range m.tables {
		if !t.Rejecting() {
			continue
		}
		for o, why := range t.Rejected() {
			reject(o, why)
		}
		m.unreachable(t.Family, reject)
	}
	out := make([]npc.InvalidPolicy, 0, len(found))
	for _, p := range found {
		out = append(out, p)
	}
	sort.Slice(out, func(i, j int) bool {
		return objectkey.Of(out[i].Namespace, out[i].Name) < objectkey.Of(out[j].Namespace, out[j].Name)
	})
	return out
}

// unreachable finds the policies whose rules cannot be reached by some of their pods, because a set on the way is rejected.
func (m *Controller) unreachable(f traffic.Family, found func(o *dataplane.Owner, why string)) {
	for _, w := range m.ways {
		for _, pt := range w.parts {
			why := pt.isolated[f].Rejected()
			for _, b := range pt.through {
				why = cmp.Or(why, b.pods[f].Rejected())
			}
			if why != "" {
				for p := range pt.policies {
					found(p.owner, why)
				}
			}
		}
	}
}

// LoggingRejected returns why packets that are dropped are not reported, in some family and direction; empty if they are.
func (m *Controller) LoggingRejected() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tables {
		if why := t.LoggingRejected(); why != "" {
			return why
		}
	}
	return ""
}
