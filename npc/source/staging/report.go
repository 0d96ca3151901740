package staging

import (
	"cmp"
	"fmt"
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
		text := s.wrong(p, faults[p.key])
		if text != "" && text != p.reported {
			s.config.Report(Notice{Key: p.key, UID: p.uid, Wrong: true, Text: text})
		}
		p.reported = text
	}
}

// wrong returns how a policy is not what its annotations ask for; empty if it is. The fault is what is wrong with it
// otherwise.
func (s *Sink) wrong(p *object, fault string) string {
	switch {
	case !p.staged && p.key.Apart:
		return "it is not staged: " + p.problem
	case !p.staged:
		return "it is enforced: " + p.problem
	case p.problem != "":
		return "it is staged and changes nothing in its world: " + p.problem
	case fault != "":
		return fault
	}
	if _, there := s.enforced[staged.Key{Namespace: p.key.Namespace, Name: p.change.Takes}]; there || p.change.Takes == "" || p.implicit {
		return ""
	}
	if p.change.Adds {
		return fmt.Sprintf("%s names %s, which is not enforced: it counts as an addition", staged.ReplacesAnnotation, p.change.Takes)
	}
	return fmt.Sprintf("%s names %s, which is not enforced: it changes nothing in its world", staged.RemovesAnnotation, p.change.Takes)
}

// compare orders policies of a namespace by name.
func (p *object) compare(q *object) int {
	return cmp.Compare(p.key.Name, q.key.Name)
}
