package index

import (
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Entries returns how many entries all sets are to have, of the family with more.
func Entries(x *Sets) (n int) {
	for _, t := range x.tables {
		n = max(n, dataplane.Entries(t))
	}
	return n
}

// Bound returns how many pods a peer selects at most. One that may become a list selects none.
func Bound(x *Sets, p *policy.MergedPeer) int {
	switch {
	case p.Block != nil || p.Nodes != nil || p.Names != nil || p.Namespaces != nil && p.Pods.Selector == nil:
		return 0
	case p.Namespaces != nil:
		return x.pods
	}
	return podsOf(x, p.Namespace)
}

// podsOf returns the number of pods of a namespace, or of all if it has no name.
func podsOf(x *Sets, namespace string) int {
	if namespace == "" {
		return x.pods
	}
	if ns := x.namespaces[namespace]; ns != nil {
		return len(ns.pods)
	}
	return 0
}

// Count returns how many entries a set of selectors has, of the family with more. Of one that is not there it returns
// how many pods with addresses would be in it or, if that need not be exact, how many at most. It returns 0 for a list
// and for other sets.
func Count(x *Sets, set rules.Set, exact bool) (n int, counted bool) {
	if known := x.selectors[set.ID]; known != nil {
		for _, of := range known.sets {
			n = max(n, dataplane.EntriesOf(of))
		}
		return n, true
	}
	var by []*selector
	switch spec := set.SetSpec.(type) {
	case rules.SelectorSpec:
		if spec.Scope != rules.ListScope {
			by = append(by, unpublished(x, spec))
		}
	case rules.PeersSpec:
		for of := range spec.Selectors() {
			by = append(by, unpublished(x, of))
		}
	}
	if !exact {
		for _, s := range by {
			n += podsOf(x, s.Namespace)
		}
		return min(n, x.pods), false
	}
	var pods []*Pod
	for p := range x.selected(by) {
		if len(p.owned) > 0 {
			pods = append(pods, p)
		}
	}
	remember(x, set.ID, pods)
	return len(pods), true
}

// unpublished returns a selector that pods do not find.
func unpublished(x *Sets, spec rules.SelectorSpec) *selector {
	s := &selector{SelectorSpec: spec}
	if spec.Namespaces != nil {
		s.namespaces = find(x, spec.Namespaces)
	}
	return s
}
