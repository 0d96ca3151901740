package networkpolicy

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
)

// Isolating returns the policies that isolate a local pod in a direction, as namespace/name, sorted.
func (s *Isolation) Isolating(q *index.Pod, d npc.Direction) (out []string) {
	for p := range s.Selecting(q) {
		if p.Isolates[d] {
			out = append(out, p.Key())
		}
	}
	return out
}

// Selecting yields the policies that select a local pod, in order of their names, and whether there is room for the
// rules of each.
func (s *Isolation) Selecting(q *index.Pod) iter.Seq2[*Policy, bool] {
	return func(yield func(*Policy, bool) bool) {
		ns := s.namespaces[q.Namespace]
		if ns == nil {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(ns.policies)) {
			if p := ns.policies[name]; p.selects(q) && !yield(p.Policy, p.denied == nil) {
				return
			}
		}
	}
}

// Uses returns the sets of isolated pods with the policies that isolate them.
func (s *Isolation) Uses() (out []index.Use) {
	for _, ns := range s.namespaces {
		for _, rs := range ns.rules {
			if rs == nil {
				continue
			}
			for _, sh := range rs.shards {
				for _, set := range sh.isolated {
					out = append(out, index.Use{Set: set, Users: sh.owners()})
				}
			}
		}
	}
	return out
}

// Unreachable calls found with the policies whose rules cannot be reached by some of their pods in a family, because
// the kernel does not take a set on the path, and why.
func (s *Isolation) Unreachable(f npc.Family, found func(o *dataplane.Owner, why string)) {
	for _, t := range s.sharding.trees {
		for _, sh := range t.shards {
			why := sh.isolated[f].Rejected()
			for _, n := range sh.path {
				why = cmp.Or(why, n.pods[f].Rejected())
			}
			if why == "" {
				continue
			}
			for p := range sh.policies {
				found(p.owner, why)
			}
		}
	}
}
