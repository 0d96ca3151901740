package index

import (
	"maps"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/order"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy/labelset"
)

// Sets provisions the sets that rules refer to, and keeps those of pods and namespaces filled.
type Sets struct {
	tables     [len(npc.Families)]*dataplane.Table
	namespaces map[string]*namespace
	addresses  *Addresses
	config     Config
	// selectors and fixed are by the IDs of their specifications.
	selectors map[string]*selector
	fixed     map[string]*fixedSets
	// cluster has the selectors of rules.ClusterScope, and ofNamespace those of one namespace, by its name.
	cluster     labelset.Selectors[*selector]
	ofNamespace map[string]*labelset.Selectors[*selector]
	// namespaceSelectors are by their texts.
	namespaceSelectors map[string]*namespaceSelector
	nodes              *nodes
}

// fixedSets are sets whose members follow from their specification alone, or which others fill.
type fixedSets struct {
	id     string
	sets   [len(npc.Families)]*dataplane.Set // nil for a family that they are not of
	owners map[*dataplane.Owner]struct{}
}

func newSets(
	c Config, tables [len(npc.Families)]*dataplane.Table, namespaces map[string]*namespace, x *Addresses,
) *Sets {
	return &Sets{config: c, tables: tables, namespaces: namespaces, addresses: x,
		selectors: map[string]*selector{}, fixed: map[string]*fixedSets{}, ofNamespace: map[string]*labelset.Selectors[*selector]{},
		namespaceSelectors: map[string]*namespaceSelector{}, nodes: newNodes(tables)}
}

// Provision makes a policy a user of sets, and makes those that are not there. Members of a list come before it.
func (x *Sets) Provision(sets []rules.Set, user *dataplane.Owner) (p Provisioned) {
	for _, s := range sets {
		switch spec := s.SetSpec.(type) {
		case rules.SelectorSpec:
			sel := x.selector(s, spec)
			sel.owners[user] = struct{}{}
			p.selectors = append(p.selectors, sel)
			continue
		case rules.NodesSpec:
			of := x.nodes.use(s, spec)
			of.owners[user] = struct{}{}
			p.nodes = append(p.nodes, of)
			continue
		}
		of := x.fixed[s.ID]
		if of == nil {
			of = x.addFixed(s)
			x.fixed[s.ID] = of
		}
		of.owners[user] = struct{}{}
		p.fixed = append(p.fixed, of)
	}
	return p
}

// Deprovision ends a policy's use of sets, and removes those that are no longer in use.
func (x *Sets) Deprovision(p Provisioned, user *dataplane.Owner) {
	for _, s := range p.selectors {
		delete(s.owners, user)
		x.release(s)
	}
	for _, s := range p.nodes {
		x.nodes.release(s, user)
	}
	for _, of := range p.fixed {
		if delete(of.owners, user); len(of.owners) > 0 {
			continue
		}
		delete(x.fixed, of.id)
		for _, set := range of.sets {
			if set != nil {
				set.Drop()
			}
		}
	}
}

// addFixed makes the sets of address blocks, of domain names or of a list of peers.
func (x *Sets) addFixed(s rules.Set) *fixedSets {
	out := &fixedSets{id: s.ID, owners: map[*dataplane.Owner]struct{}{}}
	switch spec := s.SetSpec.(type) {
	case rules.BlockSpec:
		f := spec.Family()
		out.sets[f] = x.tables[f].Sets.Add(s.Name(f), ipset.HashNet, spec.String())
		for _, e := range spec.Entries {
			out.sets[f].Add(ipset.Net(e.Prefix),
				ipset.Attr{Comment: iptables.Comment(spec.About(e)), NoMatch: e.NoMatch})
		}
	case rules.NamesSpec:
		for f, t := range x.tables {
			of := ipset.Set{Name: s.Name(t.Family), Type: ipset.HashIP, Timeout: naming.LearnedTimeout}
			out.sets[f] = t.Sets.AddExpiring(of, spec.String(), x.config.Learned(spec.Names, t.Family))
		}
	case rules.UnionSpec:
		for f, t := range x.tables {
			out.sets[f] = t.Sets.Add(s.Name(t.Family), ipset.ListSet, spec.String())
			for _, m := range spec.Members {
				if member := x.set(m, t.Family); member != nil {
					out.sets[f].Add(ipset.Member(member.Name), ipset.Attr{Comment: iptables.Comment(member.About())})
				}
			}
		}
	}
	return out
}

// set returns a set that was provisioned; nil if it has none of the family.
func (x *Sets) set(s rules.Set, f npc.Family) *dataplane.Set {
	switch sel, of, nodes := x.selectors[s.ID], x.fixed[s.ID], x.nodes.sets[s.ID]; {
	case sel != nil:
		return sel.sets[f]
	case nodes != nil:
		return nodes.sets[f]
	case of != nil:
		return of.sets[f]
	}
	return nil
}

// selector returns the selector of a specification, making it if need be.
func (x *Sets) selector(set rules.Set, spec rules.SelectorSpec) *selector {
	s := x.selectors[set.ID]
	if s != nil {
		return s
	}
	s = &selector{SelectorSpec: spec, id: set.ID, owners: map[*dataplane.Owner]struct{}{}}
	x.selectors[set.ID] = s
	for f, t := range x.tables {
		s.sets[f] = t.Sets.Add(set.Name(t.Family), setType(spec), spec.String())
		s.sets[f].SetRole(order.Role{Target: spec.Scope == rules.TargetScope})
	}
	if spec.Namespaces != nil {
		s.namespaces = x.namespaceSelector(spec.Namespaces)
		s.namespaces.users[s] = struct{}{}
	}
	x.fill(s)
	return s
}

// release removes an unused selector.
func (x *Sets) release(s *selector) {
	if len(s.owners)+len(s.lists) > 0 {
		return
	}
	delete(x.selectors, s.id)
	switch s.Scope {
	case rules.ListScope:
		for ns := range s.members {
			x.unlist(s, ns)
		}
	case rules.ClusterScope:
		x.cluster.Remove(s, s.Pods)
		x.empty(s)
	default:
		if of := x.ofNamespace[s.Namespace]; of != nil {
			if of.Remove(s, s.Pods); of.Empty() {
				delete(x.ofNamespace, s.Namespace)
			}
		}
		x.empty(s)
	}
	if s.namespaces != nil {
		if delete(s.namespaces.users, s); len(s.namespaces.users) == 0 {
			delete(x.namespaceSelectors, s.Namespaces.String())
		}
	}
	for _, set := range s.sets {
		set.Drop()
	}
}

// fill puts what a new selector matches into its sets, and the selector where pods will find it.
func (x *Sets) fill(s *selector) {
	switch s.Scope {
	case rules.ListScope:
		s.members = map[*namespace]*selector{}
		for ns := range s.namespaces.matched {
			x.list(s, ns)
		}
		return
	case rules.ClusterScope:
		x.cluster.Add(s, s.Pods)
	default:
		if x.ofNamespace[s.Namespace] == nil {
			x.ofNamespace[s.Namespace] = &labelset.Selectors[*selector]{}
		}
		x.ofNamespace[s.Namespace].Add(s, s.Pods)
	}
	for p := range x.podsInScope(s) {
		if s.matches(p) {
			s.add(p)
		}
	}
}

// empty takes all pods out of a selector.
func (x *Sets) empty(s *selector) {
	for _, set := range s.sets {
		for e := range set.States() {
			if p := x.addresses.Owner(e.Prefix.Addr()); p != nil {
				s.remove(p)
			}
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

// podsInScope yields the pods that a selector selects from.
func (x *Sets) podsInScope(s *selector) func(func(*Pod) bool) {
	return func(yield func(*Pod) bool) {
		each := func(ns *namespace) bool {
			for _, p := range ns.pods {
				if !yield(p) {
					return false
				}
			}
			return true
		}
		switch {
		case s.Namespace != "":
			if ns := x.namespaces[s.Namespace]; ns != nil {
				each(ns)
			}
		case s.namespaces != nil:
			for ns := range s.namespaces.matched {
				if !each(ns) {
					return
				}
			}
		default:
			for _, ns := range x.namespaces {
				if !each(ns) {
					return
				}
			}
		}
	}
}

// namespaceSelector returns the namespaces that a selector matches, finding them if need be.
func (x *Sets) namespaceSelector(s labels.Selector) *namespaceSelector {
	key := s.String()
	if known := x.namespaceSelectors[key]; known != nil {
		return known
	}
	n := &namespaceSelector{selector: s, matched: map[*namespace]struct{}{}, users: map[*selector]struct{}{}}
	for _, ns := range x.namespaces {
		if ns.matches(s) {
			n.matched[ns] = struct{}{}
		}
	}
	x.namespaceSelectors[key] = n
	return n
}

// FitsList reports whether the namespaces that a selector matches are few enough for a list of their sets.
func (x *Sets) FitsList(s labels.Selector) bool {
	if known := x.namespaceSelectors[s.String()]; known != nil {
		return len(known.matched) <= x.config.MaxListSize
	}
	n := 0
	for _, ns := range x.namespaces {
		if ns.matches(s) {
			n++
		}
	}
	return n <= x.config.MaxListSize
}

// relabel updates everything that selects namespaces by their labels. It returns the policies that name a selector
// whose namespaces fit into a list only now, or no longer.
func (x *Sets) relabel(ns *namespace) map[*dataplane.Owner]struct{} {
	refit := map[*dataplane.Owner]struct{}{}
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
			x.follow(s, ns, is)
		}
		if fitted != (len(n.matched) <= x.config.MaxListSize) {
			for s := range n.users {
				maps.Copy(refit, s.owners)
			}
		}
	}
	return refit
}

// follow takes a namespace into a selector, or out of it.
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
		switch {
		case !is:
			s.remove(p)
		case s.matches(p):
			s.add(p)
		}
	}
}

// memberships adds the memberships that selectors give a pod.
func (x *Sets) memberships(p *Pod, out []Membership) []Membership {
	if len(p.owned) == 0 {
		return out
	}
	join := func(s *selector) {
		if s.matches(p) {
			out = s.entries(p, out)
		}
	}
	if of := x.ofNamespace[p.Namespace]; of != nil {
		of.Each(p.labels, join)
	}
	x.cluster.Each(p.labels, join)
	return out
}

// Use is a set of policies with those that use it.
type Use struct {
	Set   *dataplane.Set
	Users map[*dataplane.Owner]struct{}
}

// Uses returns all sets with their users.
func (x *Sets) Uses() (out []Use) {
	for _, s := range x.selectors {
		users := s.users()
		for _, set := range s.sets {
			out = append(out, Use{set, users})
		}
	}
	for _, of := range x.fixed {
		for _, set := range of.sets {
			if set != nil {
				out = append(out, Use{set, of.owners})
			}
		}
	}
	return append(out, x.nodes.uses()...)
}
