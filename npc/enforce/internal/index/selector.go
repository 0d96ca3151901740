package index

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
)

// selector is a selector in use, with the sets of what it matches.
type selector struct {
	rules.SelectorSpec
	id   string
	sets [len(npc.Families)]*dataplane.Set
	// union is what the selector is one of several of, whose sets it shares; nil if its sets are its own. parts are
	// those several; nil if it is no union.
	union *selector
	parts []*selector
	// owners are the policies that use the selector, and how often; lists are the selectors that have it as a member.
	owners owners
	lists  map[*selector]struct{}
	// namespaces are those that Namespaces matches; nil if it is nil.
	namespaces *namespaceSelector
	// members are, for rules.ListScope, the namespaces' sets of all pods.
	members map[*namespace]*selector
}

// setType returns the type of a selector's sets.
func setType(s rules.SelectorSpec) ipset.Type {
	switch {
	case s.Scope == rules.ListScope:
		return ipset.ListSet
	case s.Port.Name != "":
		return ipset.HashIPPort
	}
	return ipset.HashIP
}

// matches reports whether the selector selects a pod, by its labels and those of its namespace.
func (s *selector) matches(p *Pod) bool {
	return (s.namespaces == nil || s.namespaces.has(p.ns)) && s.selects(p)
}

// selects reports whether the selector selects a pod of a namespace that it selects from.
func (s *selector) selects(p *Pod) bool {
	if s.Scope == rules.TargetScope && !p.local {
		return false
	}
	return s.Pods == nil || !p.Unlabelled && s.Pods.Matches(&p.labels)
}

// entries adds a pod's memberships in the selector's sets to out.
func (s *selector) entries(p *Pod, out []Membership) []Membership {
	for _, a := range p.owned {
		set := s.sets[npc.FamilyOf(a)]
		if s.Port.Name == "" {
			out = append(out, Membership{set, ipset.Addr(a)})
			continue
		}
		for _, port := range p.Ports {
			if port.Name == s.Port.Name && port.Protocol == s.Port.Protocol {
				out = append(out, Membership{set, ipset.AddrPort(a, port.Protocol, port.Port)})
			}
		}
	}
	return out
}

// has reports whether a pod is in the selector's sets.
func (s *selector) has(p *Pod) bool {
	return slices.ContainsFunc(p.members, func(m Membership) bool { return m.Set == s.sets[m.Set.Family()] })
}

// add puts a pod that the selector matches into its sets.
func (s *selector) add(p *Pod) {
	before := len(p.members)
	p.members = s.entries(p, p.members)
	if len(p.members) == before {
		return
	}
	attr := ipset.Attr{Comment: p.Comment()}
	for _, m := range p.members[before:] {
		m.Set.Add(m.Entry, attr)
	}
}

// remove takes a pod out of the selector's sets.
func (s *selector) remove(p *Pod) {
	p.members = slices.DeleteFunc(p.members, func(m Membership) bool {
		if m.Set != s.sets[m.Set.Family()] {
			return false
		}
		m.Set.Remove(m.Entry)
		return true
	})
}

// users returns the policies that use the selector, by itself or by a list that it is a member of.
func (s *selector) users() owners {
	if len(s.lists) == 0 {
		return s.owners
	}
	all := maps.Clone(s.owners)
	for list := range s.lists {
		maps.Copy(all, list.owners)
	}
	return all
}

// namespaceSelector is a selector of namespaces with those that it matches, found once for all selectors of pods that
// ask for it.
type namespaceSelector struct {
	selector labels.Selector
	text     string // of the selector
	matched  map[*namespace]struct{}
	users    map[*selector]struct{}
}

func (s *namespaceSelector) has(ns *namespace) bool {
	_, ok := s.matched[ns]
	return ok
}
