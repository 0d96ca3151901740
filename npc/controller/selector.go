package controller

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// scope is which pods a selector chooses from, and so what kind of set holds them.
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
func (s selectorSpec) setName(f traffic.Family) string { return naming.Set(f, s.key()...) }

func (s selectorSpec) setType() ipset.Type {
	switch {
	case s.scope == listScope:
		return ipset.ListSet
	case s.port.name != "":
		return ipset.HashIPPort
	}
	return ipset.HashIP
}

// String returns what the selector matches, for humans.
func (s selectorSpec) String() string {
	var b strings.Builder
	if s.port.name != "" {
		b.WriteString("port " + s.port.name + "/" + traffic.ProtocolName(s.port.protocol) + " of ")
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
	sets [len(traffic.Families)]*dataplane.Set
	// users are those on whose behalf the selector is provisioned: policies, and selectors of namespaces.
	users map[any]struct{}
	// spaces are the namespaces that namespaces matches; nil if it is.
	spaces *spaces
	// members are, for listScope, the namespaces' sets of all pods.
	members map[*namespace]*selector
}

// matches reports whether the selector chooses a pod, by its labels and those of its namespace.
func (s *selector) matches(p *pod) bool {
	if s.scope == targetScope && !p.local {
		return false
	}
	if s.spaces != nil && !s.spaces.has(p.ns) {
		return false
	}
	return s.pods == nil || s.pods.Matches(&p.labels)
}

// entries adds a pod's memberships in the selector's sets to out.
func (s *selector) entries(p *pod, out []membership) []membership {
	for _, a := range p.owned {
		set := s.sets[traffic.FamilyOf(a)]
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
	byLabel map[wanted][]*selector
	rest    []*selector
}

// wanted is a label by which a selector is found: one that every pod has that it matches.
type wanted struct {
	label
	// anyValue is set if the key is enough.
	anyValue bool
}

// wants are the labels of which every pod has exactly one that the selector matches; none if there are no such.
func (s *selector) wants() (out []wanted) {
	if s.pods == nil {
		return nil
	}
	requirements, _ := s.pods.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.Values(); out == nil || out[0].anyValue || values.Len() < len(out) {
				out = nil
				for value := range values {
					out = append(out, wanted{label: label{r.Key(), value}})
				}
			}
		case selection.Exists:
			if out == nil {
				out = []wanted{{label{key: r.Key()}, true}}
			}
		}
	}
	return out
}

func (ss *selectorSet) add(s *selector) {
	wants := s.wants()
	if wants == nil {
		ss.rest = append(ss.rest, s)
		return
	}
	if ss.byLabel == nil {
		ss.byLabel = map[wanted][]*selector{}
	}
	for _, w := range wants {
		ss.byLabel[w] = append(ss.byLabel[w], s)
	}
}

func (ss *selectorSet) remove(s *selector) {
	without := func(l []*selector) []*selector {
		if i := slices.Index(l, s); i >= 0 {
			return slices.Delete(l, i, i+1)
		}
		return l
	}
	wants := s.wants()
	if wants == nil {
		ss.rest = without(ss.rest)
	}
	for _, w := range wants {
		if ss.byLabel[w] = without(ss.byLabel[w]); len(ss.byLabel[w]) == 0 {
			delete(ss.byLabel, w)
		}
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
		for _, l := range p.labels {
			try(ss.byLabel[wanted{label: l}])
			try(ss.byLabel[wanted{label{key: l.key}, true}])
		}
	}
}

// provision makes user a user of the selector, and makes the selector if it is the first.
func (m *Controller) provision(spec selectorSpec, user any) *selector {
	key := naming.Hash(spec.key()...)
	s := m.selectors[key]
	if s == nil {
		s = &selector{selectorSpec: spec, users: map[any]struct{}{}}
		m.selectors[key] = s
		for _, t := range m.tables {
			s.sets[t.Family] = t.Sets.Add(spec.setName(t.Family), spec.setType(), spec.String())
		}
		m.useSpaces(s)
		m.fill(s)
	}
	s.users[user] = struct{}{}
	return s
}

// deprovision ends user's use of the selector, and the selector with its last user.
func (m *Controller) deprovision(s *selector, user any) {
	delete(s.users, user)
	if len(s.users) > 0 {
		return
	}
	delete(m.selectors, naming.Hash(s.key()...))
	switch s.scope {
	case listScope:
		for _, member := range s.members {
			m.deprovision(member, s)
		}
	case clusterScope:
		m.cluster.remove(s)
		m.empty(s)
	default:
		m.namespace(s.namespace).selectors.remove(s)
		m.empty(s)
		m.releaseNamespace(s.namespace)
	}
	m.leaveSpaces(s)
	for _, set := range s.sets {
		set.Drop()
	}
}

// fill puts what a new selector matches into its sets, and the selector where pods will find it.
func (m *Controller) fill(s *selector) {
	switch s.scope {
	case listScope:
		s.members = map[*namespace]*selector{}
		for ns := range s.spaces.matched {
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
func (m *Controller) list(s *selector, ns *namespace) {
	member, is := s.members[ns]
	switch should := s.spaces.has(ns); {
	case should && !is:
		member = m.provision(selectorSpec{scope: podScope, namespace: ns.Name}, s)
		s.members[ns] = member
		for f, set := range s.sets {
			set.Add(ipset.Member(member.sets[f].Name), ipset.Attr{Comment: comment(ns.Name)})
		}
	case is && !should:
		delete(s.members, ns)
		for f, set := range s.sets {
			set.Remove(ipset.Member(member.sets[f].Name))
		}
		m.deprovision(member, s)
	}
}

// empty takes all pods out of a selector.
func (m *Controller) empty(s *selector) {
	for _, set := range s.sets {
		for e := range set.States() {
			if p := m.claims.Owner(e.Prefix.Addr()); p != nil {
				p.leave(s)
			}
		}
	}
}

// podsInScope yields the pods that a selector chooses from.
func (m *Controller) podsInScope(s *selector) func(func(*pod) bool) {
	return func(yield func(*pod) bool) {
		each := func(ns *namespace) bool {
			for _, p := range ns.pods {
				if !yield(p) {
					return false
				}
			}
			return true
		}
		switch {
		case s.namespace != "":
			each(m.namespace(s.namespace))
		case s.spaces != nil:
			for ns := range s.spaces.matched {
				if !each(ns) {
					return
				}
			}
		default:
			for _, ns := range m.namespaces {
				if !each(ns) {
					return
				}
			}
		}
	}
}

func (ss *selectorSet) empty() bool { return len(ss.byLabel)+len(ss.rest) == 0 }
