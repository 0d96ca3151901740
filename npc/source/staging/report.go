package staging

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weave-npc/weave-npc/npc/policy/staged"
)

// report reports which policies of a namespace are not what their annotations ask for, each once as long as that does
// not change. s.mu is held.
func (s *Sink) report(namespace string) {
	of := s.annotated[namespace]
	if !s.synced || len(of) == 0 {
		return
	}
	faults := s.config.Stage.Faults(namespace)
	for _, p := range slices.SortedFunc(maps.Values(of), (*object).compare) {
		text := s.wrong(p, faults[p.Key])
		if text != "" && text != p.reported {
			s.config.Report(Notice{Key: p.Key, UID: p.uid, Wrong: true, Text: text})
		}
		p.reported = text
	}
}

// wrong returns how a policy is not what its annotations ask for; empty if it is. The fault is what is wrong with it
// otherwise.
func (s *Sink) wrong(p *object, fault string) string {
	return p.Wrong(fault, func(taken staged.Key) bool {
		_, is := s.enforced[taken]
		return is || p.implicit
	})
}

// compare orders policies of a namespace by name.
func (p *object) compare(q *object) int {
	return cmp.Compare(p.Key.Name, q.Key.Name)
}
