package isolation

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/index"
	"github.com/weave-npc/weave-npc/npc/traffic"
	"github.com/weave-npc/weave-npc/npc/verdict"
)

// Isolating returns the policies that isolate a local pod in a direction, as namespace/name, sorted.
func (s *Isolation) Isolating(q *index.Pod, d traffic.Direction) (out []string) {
	ns := s.namespaces[q.Namespace]
	if ns == nil {
		return nil
	}
	for _, p := range ns.policies {
		if p.selects(q) && p.Isolates[d] {
			out = append(out, p.key())
		}
	}
	slices.Sort(out)
	return out
}

// Rules returns the rules of the policies that isolate a local pod in a direction. A policy for whose rules there is no room has none.
func (s *Isolation) Rules(q *index.Pod, d traffic.Direction) (out []verdict.Rule) {
	ns := s.namespaces[q.Namespace]
	if ns == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(ns.policies)) {
		p := ns.policies[name]
		if !p.selects(q) || !p.Isolates[d] || p.denied != nil {
			continue
		}
		for i, r := range p.Merged[d] {
			out = append(out, verdict.Rule{MergedRule: r, By: verdict.By{Policy: p.key(), Number: i + 1}})
		}
	}
	return out
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

// Unreachable calls found with the policies whose rules cannot be reached by some of their pods in a family, because the kernel does not
// take a set on the path, and why.
func (s *Isolation) Unreachable(f traffic.Family, found func(o *dataplane.Owner, why string)) {
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
