package controller

import (
	"maps"
	"slices"

	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// SetUse is what a set is for.
type SetUse struct {
	// About describes what the set holds: a selector, an address block, the local pods.
	About string
	// Policies are those whose rules ask the set, as namespace/name, sorted; none for a set that every node has.
	Policies []string
}

// Uses are what the sets of the model are for: name -> use. Of a set that is not there because no local pod has an address of its
// family, the name that it would have is among them.
func (m *Controller) Uses() map[string]SetUse {
	m.mu.Lock()
	defer m.mu.Unlock()
	uses := map[string]SetUse{}
	for _, t := range m.tables {
		for s := range t.Sets.Wanted() {
			uses[s.Name] = SetUse{About: s.About()}
		}
	}
	put := func(sets [len(traffic.Families)]*dataplane.Set, users []string) {
		for _, s := range sets {
			if s != nil {
				uses[s.Name] = SetUse{s.About(), users}
			}
		}
	}
	for _, s := range m.selectors {
		put(s.sets, users(s.users))
	}
	for _, u := range m.unions {
		put(u.sets, names(u.users))
	}
	for _, b := range m.blocks {
		put([len(traffic.Families)]*dataplane.Set{b.set}, names(b.users))
	}
	for _, ns := range m.namespaces {
		for _, rs := range ns.rules {
			if rs == nil {
				continue
			}
			for _, pt := range rs.parts {
				put(pt.isolated, names(pt.policies))
			}
		}
	}
	return uses
}

// names are the names of policies, sorted.
func names(policies map[*policy]struct{}) []string {
	out := make([]string, 0, len(policies))
	for p := range policies {
		out = append(out, p.key())
	}
	slices.Sort(out)
	return out
}

// users are the names of the policies that use a selector, by themselves or by a list that it is a member of.
func users(of map[any]struct{}) []string {
	all := map[string]struct{}{}
	for u := range of {
		switch u := u.(type) {
		case *policy:
			all[u.key()] = struct{}{}
		case *selector:
			for _, name := range users(u.users) {
				all[name] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// ChainUse returns what a chain is for; empty if it is not desired.
func (m *Controller) ChainUse(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tables {
		if about := t.Chains.About(name); about != "" {
			return about
		}
	}
	return ""
}
