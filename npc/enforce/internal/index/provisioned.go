package index

import (
	"iter"

	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
)

// Provisioned are the sets that a policy uses.
type Provisioned struct {
	selectors []*selector
	nodes     []*nodeSets
	fixed     []*fixedSets
}

// Fix makes sets of selectors ones that chains ask for which every node has.
func (p Provisioned) Fix() {
	for _, s := range p.selectors {
		for _, set := range s.sets {
			dataplane.Fix(set)
		}
	}
}

// OfRules yields the sets of pods and of nodes that one rule of a cluster network policy alone uses, with the ID of the
// rule.
func (p Provisioned) OfRules() iter.Seq2[string, *dataplane.Set] {
	return func(yield func(string, *dataplane.Set) bool) {
		for _, s := range p.selectors {
			if s.User == nil {
				continue
			}
			for _, set := range s.sets {
				if !yield(s.User.ID, set) {
					return
				}
			}
		}
		for _, s := range p.nodes {
			for _, set := range s.sets {
				if s.User != nil && !yield(s.User.ID, set) {
					return
				}
			}
		}
	}
}
