package npc

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/weave-npc/weave-npc/ipset"
)

// scope says which pods a selector chooses from, and so what kind of set holds them.
type scope uint8

const (
	// targetScope: the local pods of one namespace.
	targetScope scope = iota
	// podScope: all pods of one namespace.
	podScope
	// clusterScope: the pods of all namespaces that a namespace selector matches.
	clusterScope
	// listScope: the namespaces that a namespace selector matches, as a list of their sets of all pods.
	listScope
)

// selectorSpec names a selector. Equal specs have equal keys and share one set.
type selectorSpec struct {
	scope scope
	// namespace is that of targetScope and podScope.
	namespace string
	// namespaces chooses the namespaces of clusterScope and listScope; nil chooses all, those whose objects have not
	// arrived among them.
	namespaces labels.Selector
	// pods chooses among the pods of the scope; nil chooses all.
	pods labels.Selector
	// port, if it has a name, makes a set of the chosen pods' addresses with the number that the port has there.
	port portName
}

// portName is a named port of a protocol.
type portName struct {
	name     string
	protocol uint8
}

// key is the canonical text of the spec, as parts to be hashed.
func (s selectorSpec) key() []string {
	text := func(sel labels.Selector) string {
		if sel == nil {
			return ""
		}
		return "=" + sel.String() // a selector of everything is not the same as none
	}
	return []string{"selector", strconv.Itoa(int(s.scope)), s.namespace, text(s.namespaces), text(s.pods),
		s.port.name, strconv.Itoa(int(s.port.protocol))}
}

// setName is the name of the set that holds what the selector matches.
func (s selectorSpec) setName(f Family) string { return setName(f, s.key()...) }

func (s selectorSpec) setType() ipset.Type {
	switch {
	case s.scope == listScope:
		return ipset.ListSet
	case s.port.name != "":
		return ipset.HashIPPort
	}
	return ipset.HashIP
}

// String says for humans what the selector matches.
func (s selectorSpec) String() string {
	var b strings.Builder
	if s.port.name != "" {
		b.WriteString("port " + s.port.name + "/" + strings.ToLower(protocolName(s.port.protocol)) + " of ")
	}
	if s.scope == targetScope {
		b.WriteString("local ")
	}
	b.WriteString("pods")
	if s.pods != nil && !s.pods.Empty() {
		b.WriteString(" with " + s.pods.String())
	}
	switch {
	case s.namespace != "":
		b.WriteString(" in " + s.namespace)
	case s.namespaces == nil || s.namespaces.Empty():
		b.WriteString(" in all namespaces")
	default:
		b.WriteString(" in namespaces with " + s.namespaces.String())
	}
	return b.String()
}

// selector is a selector that somebody uses, with the sets of what it matches.
type selector struct {
	selectorSpec
	sets [len(families)]*set
	// users are those on whose behalf the selector is provisioned: policies, and selectors of namespaces.
	users map[any]struct{}
	// members are, for listScope, the namespaces' sets of all pods.
	members map[*namespace]*selector
}

// matches says whether the selector chooses a pod, by its labels and those of its namespace.
func (s *selector) matches(p *pod) bool {
	if s.scope == targetScope && !p.local {
		return false
	}
	if s.namespaces != nil && !p.ns.matches(s.namespaces) {
		return false
	}
	return s.pods == nil || s.pods.Matches(labels.Set(p.Labels))
}

// entries adds a pod's memberships in the selector's sets to out.
func (s *selector) entries(p *pod, out []membership) []membership {
	for _, a := range p.owned {
		set := s.sets[familyOf(a)]
		if s.port.name == "" {
			out = append(out, membership{set, ipset.Addr(a)})
			continue
		}
		for _, port := range p.Ports {
			if port.Name == s.port.name && port.Protocol == s.port.protocol {
				out = append(out, membership{set, ipset.AddrPort(a, port.Protocol, port.Port)})
			}
		}
	}
	return out
}

// selectorSet are the selectors of one scope, found by a label that they ask for.
type selectorSet struct {
	byLabel map[string][]*selector
	rest    []*selector
}

// labelKey is a label by which a selector is found: one that every pod it matches has.
func (s *selector) labelKey() string {
	if s.pods == nil {
		return ""
	}
	requirements, _ := s.pods.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.Values(); values.Len() == 1 {
				return r.Key() + "=" + values.List()[0]
			}
		}
	}
	return ""
}

func (ss *selectorSet) add(s *selector) {
	key := s.labelKey()
	if key == "" {
		ss.rest = append(ss.rest, s)
		return
	}
	if ss.byLabel == nil {
		ss.byLabel = map[string][]*selector{}
	}
	ss.byLabel[key] = append(ss.byLabel[key], s)
}

func (ss *selectorSet) remove(s *selector) {
	without := func(l []*selector) []*selector {
		if i := slices.Index(l, s); i >= 0 {
			return slices.Delete(l, i, i+1)
		}
		return l
	}
	key := s.labelKey()
	if key == "" {
		ss.rest = without(ss.rest)
		return
	}
	if ss.byLabel[key] = without(ss.byLabel[key]); len(ss.byLabel[key]) == 0 {
		delete(ss.byLabel, key)
	}
}

// each calls f with the selectors that match the pod.
func (ss *selectorSet) each(p *pod, f func(*selector)) {
	try := func(l []*selector) {
		for _, s := range l {
			if s.matches(p) {
				f(s)
			}
		}
	}
	try(ss.rest)
	if len(ss.byLabel) > 0 {
		for k, v := range p.Labels {
			try(ss.byLabel[k+"="+v])
		}
	}
}

// provision makes user a user of the selector, and makes the selector if it is the first.
func (m *Model) provision(spec selectorSpec, user any) *selector {
	key := hash(spec.key()...)
	s := m.selectors[key]
	if s == nil {
		s = &selector{selectorSpec: spec, users: map[any]struct{}{}}
		m.selectors[key] = s
		for _, t := range m.tables {
			s.sets[t.family] = t.set(spec.setName(t.family), spec.setType(), spec.String())
		}
		m.fill(s)
	}
	s.users[user] = struct{}{}
	return s
}

// deprovision ends user's use of the selector, and the selector with its last user.
func (m *Model) deprovision(s *selector, user any) {
	delete(s.users, user)
	if len(s.users) > 0 {
		return
	}
	delete(m.selectors, hash(s.key()...))
	switch s.scope {
	case listScope:
		delete(m.lists, s)
		for _, member := range s.members {
			m.deprovision(member, s)
		}
	case clusterScope:
		m.cluster.remove(s)
		for p := range m.podsInScope(s) {
			p.leave(s)
		}
	default:
		m.namespace(s.namespace).selectors.remove(s)
		for p := range m.podsInScope(s) {
			p.leave(s)
		}
		m.releaseNamespace(s.namespace)
	}
	for _, set := range s.sets {
		set.table.dropSet(set)
	}
}

// fill puts what a new selector matches into its sets, and the selector where pods will find it.
func (m *Model) fill(s *selector) {
	switch s.scope {
	case listScope:
		s.members = map[*namespace]*selector{}
		m.lists[s] = struct{}{}
		for _, ns := range m.namespaces {
			m.list(s, ns)
		}
		return
	case clusterScope:
		m.cluster.add(s)
	default:
		m.namespace(s.namespace).selectors.add(s)
	}
	for p := range m.podsInScope(s) {
		if s.matches(p) {
			p.join(s)
		}
	}
}

// list brings a namespace's membership in a list of namespaces up to date.
func (m *Model) list(s *selector, ns *namespace) {
	member, is := s.members[ns]
	switch should := ns.matches(s.namespaces); {
	case should && !is:
		member = m.provision(selectorSpec{scope: podScope, namespace: ns.Name}, s)
		s.members[ns] = member
		for f, set := range s.sets {
			set.add(ipset.Member(member.sets[f].Name), ipset.Attr{Comment: comment(ns.Name)})
		}
	case is && !should:
		delete(s.members, ns)
		for f, set := range s.sets {
			set.remove(ipset.Member(member.sets[f].Name))
		}
		m.deprovision(member, s)
	}
}

// podsInScope yields the pods that a selector chooses from.
func (m *Model) podsInScope(s *selector) func(func(*pod) bool) {
	return func(yield func(*pod) bool) {
		each := func(ns *namespace) bool {
			for _, p := range ns.pods {
				if !yield(p) {
					return false
				}
			}
			return true
		}
		if s.namespace != "" {
			if ns := m.namespaces[s.namespace]; ns != nil {
				each(ns)
			}
			return
		}
		for _, ns := range m.namespaces {
			if !each(ns) {
				return
			}
		}
	}
}

func (ss *selectorSet) empty() bool { return len(ss.byLabel)+len(ss.rest) == 0 }
