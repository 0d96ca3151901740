package index

import (
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Entries returns how many entries the sets of selectors have, of the family with more.
func (x *Sets) Entries() int {
	var n [len(npc.Families)]int
	for _, s := range x.selectors {
		for f, set := range s.sets {
			n[f] += dataplane.Len(set)
		}
	}
	return slices.Max(n[:])
}

// Bound returns how many pods a peer selects at most. One that may become a list selects none.
func Bound(x *Sets, p *policy.MergedPeer) (n int) {
	switch {
	case p.Block != nil || p.Nodes != nil || p.Names != nil || p.Namespaces != nil && p.Pods.Selector == nil:
	case p.Namespaces != nil:
		for _, ns := range x.namespaces {
			n += len(ns.pods)
		}
	case x.namespaces[p.Namespace] != nil:
		n = len(x.namespaces[p.Namespace].pods)
	}
	return n
}

// Count returns how many pods with addresses are in a set of selectors, or would be; 0 for a list and for other sets.
func (x *Sets) Count(set rules.Set) (n int) {
	var by []*selector
	add := func(spec rules.SelectorSpec) {
		s := &selector{SelectorSpec: spec}
		if spec.Namespaces != nil {
			if s.namespaces = x.namespaceSelectors[spec.Namespaces.String()]; s.namespaces == nil {
				s.namespaces = find(spec.Namespaces, x.namespaces)
			}
		}
		by = append(by, s)
	}
	switch spec := set.SetSpec.(type) {
	case rules.SelectorSpec:
		if spec.Scope != rules.ListScope {
			add(spec)
		}
	case rules.PeersSpec:
		for of := range spec.Selectors() {
			add(of)
		}
	}
	for p := range x.selected(by) {
		if len(p.owned) > 0 {
			n++
		}
	}
	return n
}
