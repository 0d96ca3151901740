package index

import (
	"iter"
	"maps"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy/labelset"
)

// namespaceSelector returns the namespaces that a selector matches, finding them if need be.
func (x *Sets) namespaceSelector(s labels.Selector) *namespaceSelector {
	n := find(x, s)
	x.namespaceSelectors[n.text] = n
	return n
}

// find returns the namespaces that a selector matches, as they are known or else by looking at all.
func find(x *Sets, s labels.Selector) *namespaceSelector {
	text := s.String()
	if known := x.namespaceSelectors[text]; known != nil {
		return known
	}
	n := &namespaceSelector{selector: s, text: text, matched: map[*namespace]struct{}{}, users: map[*selector]struct{}{}}
	for _, ns := range x.namespaces {
		if ns.matches(s) {
			n.matched[ns] = struct{}{}
		}
	}
	return n
}

// FitsList reports whether the namespaces that a selector matches are few enough for a list of their sets.
func (x *Sets) FitsList(s labels.Selector) bool {
	return len(find(x, s).matched) <= x.config.MaxListSize
}

// relabel updates everything that selects namespaces by their labels. It returns the policies that name a selector
// whose namespaces fit into a list only now, or no longer.
func (x *Sets) relabel(ns *namespace) map[*dataplane.Owner]struct{} {
	refit, unions := map[*dataplane.Owner]struct{}{}, map[*selector]struct{}{}
	left := map[*dataplane.Set]struct{}{}
	forget(x)
	for _, n := range x.namespaceSelectors {
		is := ns.matches(n.selector)
		if is == n.has(ns) {
			continue
		}
		fitted := len(n.matched) <= x.config.MaxListSize
		if is {
			n.matched[ns] = struct{}{}
		} else {
			delete(n.matched, ns)
		}
		for s := range n.users {
			if s.union != nil {
				unions[s.union] = struct{}{}
				continue
			}
			if !is && s.Scope != rules.ListScope {
				left[s.sets[0]], left[s.sets[1]] = struct{}{}, struct{}{}
				continue
			}
			x.follow(s, ns, is)
		}
		if fitted != (len(n.matched) <= x.config.MaxListSize) {
			for s := range n.users {
				for o := range s.owners {
					refit[o] = struct{}{}
				}
			}
		}
	}
	if len(left) > 0 {
		for _, p := range ns.pods {
			p.leave(left, false)
		}
	}
	if len(unions) > 0 {
		x.refill(unions, ns)
	}
	return refit
}

// follow takes a namespace into a selector, or out of a list.
func (x *Sets) follow(s *selector, ns *namespace, is bool) {
	switch {
	case s.Scope == rules.ListScope && is:
		x.list(s, ns)
		return
	case s.Scope == rules.ListScope:
		x.unlist(s, ns)
		return
	}
	for _, p := range ns.pods {
		if s.selects(p) {
			s.add(p)
		}
	}
}

// list makes a namespace's set of all pods a member of a list.
func (x *Sets) list(s *selector, ns *namespace) {
	spec := rules.SelectorSpec{Scope: rules.NamespaceScope, Namespace: ns.Name}
	member := x.selector(rules.NewSet(spec), spec)
	if member.lists == nil {
		member.lists = map[*selector]struct{}{}
	}
	member.lists[s] = struct{}{}
	s.members[ns] = member
	for f, set := range s.sets {
		set.Add(ipset.Member(member.sets[f].Name), ipset.Attr{Comment: iptables.Comment(ns.Name)})
	}
}

// unlist takes a namespace's set out of a list.
func (x *Sets) unlist(s *selector, ns *namespace) {
	member := s.members[ns]
	delete(s.members, ns)
	for f, set := range s.sets {
		set.Remove(ipset.Member(member.sets[f].Name))
	}
	delete(member.lists, s)
	x.release(member)
}

// scope yields the namespaces of the pods that a selector selects from.
func (x *Sets) scope(s *selector) iter.Seq2[*namespace, struct{}] {
	return func(yield func(*namespace, struct{}) bool) {
		switch {
		case s.Namespace != "":
			if ns := x.namespaces[s.Namespace]; ns != nil {
				yield(ns, struct{}{})
			}
		case s.namespaces != nil:
			maps.All(s.namespaces.matched)(yield)
		default:
			for _, ns := range x.namespaces {
				if !yield(ns, struct{}{}) {
					return
				}
			}
		}
	}
}

// matching yields the pods that a selector selects.
func (x *Sets) matching(s *selector) iter.Seq[*Pod] {
	return func(yield func(*Pod) bool) {
		for ns := range x.scope(s) {
			for _, p := range ns.pods {
				if s.selects(p) && !yield(p) {
					return
				}
			}
		}
	}
}

// selected yields the pods that any of some selectors selects. It asks these alone: there may be many others.
func (x *Sets) selected(by []*selector) iter.Seq[*Pod] {
	if len(by) == 1 {
		return x.matching(by[0])
	}
	var asked labelset.Selectors[*selector]
	within, scopes := map[*namespace]struct{}{}, map[any]struct{}{}
	for _, s := range by {
		asked.Add(s, s.Pods)
		scope := any(s.Namespace)
		if s.namespaces != nil {
			scope = s.namespaces
		}
		if _, known := scopes[scope]; !known {
			scopes[scope] = struct{}{}
			maps.Insert(within, x.scope(s))
		}
	}
	return func(yield func(*Pod) bool) {
		for ns := range within {
			for _, p := range ns.pods {
				selects := false
				asked.Each(p.labels, func(s *selector) { selects = selects || s.matches(p) })
				if selects && !yield(p) {
					return
				}
			}
		}
	}
}
