package controller

import "k8s.io/apimachinery/pkg/labels"

// spaces are the namespaces that a selector of namespaces matches, found once for all selectors of pods that ask for it.
type spaces struct {
	labels.Selector
	matched map[*namespace]struct{}
	users   map[*selector]struct{}
}

func (sp *spaces) has(ns *namespace) bool {
	_, ok := sp.matched[ns]
	return ok
}

// useSpaces has a selector of pods use a selector of namespaces; nil chooses all.
func (m *Controller) useSpaces(s *selector) {
	if s.namespaces == nil {
		return
	}
	key := s.namespaces.String()
	sp := m.spaces[key]
	if sp == nil {
		sp = &spaces{Selector: s.namespaces, matched: map[*namespace]struct{}{}, users: map[*selector]struct{}{}}
		for _, ns := range m.namespaces {
			if ns.matches(sp) {
				sp.matched[ns] = struct{}{}
			}
		}
		m.spaces[key] = sp
	}
	sp.users[s] = struct{}{}
	s.spaces = sp
}

func (m *Controller) leaveSpaces(s *selector) {
	if s.spaces == nil {
		return
	}
	if delete(s.spaces.users, s); len(s.spaces.users) == 0 {
		delete(m.spaces, s.namespaces.String())
	}
}

// matching is the number of namespaces that a selector matches.
func (m *Controller) matching(s labels.Selector) int {
	if sp := m.spaces[s.String()]; sp != nil {
		return len(sp.matched)
	}
	n := 0
	for _, ns := range m.namespaces {
		if ns.matches(s) {
			n++
		}
	}
	return n
}

// relabelNamespace lets everything follow that chooses namespaces by their labels.
func (m *Controller) relabelNamespace(ns *namespace) {
	var refit []*spaces
	for _, sp := range m.spaces {
		is := ns.matches(sp)
		if is == sp.has(ns) {
			continue
		}
		flat := len(sp.matched) > m.listLimit()
		if is {
			sp.matched[ns] = struct{}{}
		} else {
			delete(sp.matched, ns)
		}
		for s := range sp.users {
			m.follow(s, ns, is)
		}
		if flat != (len(sp.matched) > m.listLimit()) {
			refit = append(refit, sp)
		}
	}
	for _, sp := range refit {
		m.refitLists(sp)
	}
}

// follow takes a namespace into a selector, or out of it.
func (m *Controller) follow(s *selector, ns *namespace, is bool) {
	if s.scope == listScope {
		m.list(s, ns)
		return
	}
	for _, p := range ns.pods {
		switch {
		case !is:
			p.leave(s)
		case s.matches(p):
			p.join(s)
		}
	}
}

// listLimit is how many namespaces a list has at most.
func (m *Controller) listLimit() int { return min(flatAbove, m.MaxListSize) }

// refitLists gives the policies whose peers are namespaces lists or flat sets, as fits their number now.
func (m *Controller) refitLists(sp *spaces) {
	policies := map[*policy]struct{}{}
	for s := range sp.users {
		for u := range s.users {
			if p, ok := u.(*policy); ok {
				policies[p] = struct{}{}
			}
		}
	}
	for p := range policies {
		ns := m.namespaces[p.namespace]
		if len(p.selected) > 0 && ns.policies[p.name] == p && m.misfits(p) {
			m.renew(ns, p, p.over)
		}
	}
}
