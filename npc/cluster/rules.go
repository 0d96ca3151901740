package cluster

import (
	"iter"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Rules yields the rules of all policies of a view.
func Rules(v *View) iter.Seq[*policy.Rule] {
	return func(yield func(*policy.Rule) bool) {
		for _, d := range npc.Directions {
			for r := range RulesOf(v, d) {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// RulesOf yields the rules of all policies for a direction.
func RulesOf(v *View, d npc.Direction) iter.Seq[*policy.Rule] {
	return func(yield func(*policy.Rule) bool) {
		for _, p := range v.Policies {
			for i := range p.Rules[d] {
				if !yield(&p.Rules[d][i]) {
					return
				}
			}
		}
		for _, p := range v.ClusterPolicies {
			for i := range p.Written[d] {
				if !yield(&p.Written[d][i].Rule) {
					return
				}
			}
		}
	}
}

// PodLabels returns the keys of the labels that the policies' selectors of pods name.
func PodLabels(v *View) map[string]bool {
	keys := map[string]bool{}
	add := func(s *policy.Selector) {
		if s != nil {
			for _, k := range s.Keys() {
				keys[k] = true
			}
		}
	}
	for _, p := range v.Policies {
		add(&p.Target)
	}
	for _, p := range v.ClusterPolicies {
		add(&p.Pods)
	}
	for r := range Rules(v) {
		for _, peer := range r.Peers {
			add(peer.Pods)
		}
	}
	return keys
}
