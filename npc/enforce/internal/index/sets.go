package index

import (
	"iter"
	"slices"

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
	pods       int // of all namespaces
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
	// counted are the pods of sets that were counted and are not there, until a pod or a namespace changes.
	counted   map[string][]*Pod
	countedOf int // sets and their pods
	// joined are the unions that memberships found for a pod.
	joined []*selector
	// dropped are sets of selectors that pods may still have memberships in, and left these pods. A pod may be in
	// thousands of sets: it leaves all that go in one pass.
	dropped map[*dataplane.Set]struct{}
	left    map[*Pod]struct{}
}

// fixedSets are sets whose members follow from their specification alone, or which others fill.
type fixedSets struct {
	id     string
	sets   [len(npc.Families)]*dataplane.Set // nil for a family that they are not of
	past   [len(npc.Families)]*dataplane.Set // of domain names: what was learned, for the next process
	owners owners
}

func newSets(
	c Config, tables [len(npc.Families)]*dataplane.Table, namespaces map[string]*namespace, x *Addresses,
) *Sets {
	return &Sets{config: c, tables: tables, namespaces: namespaces, addresses: x,
		selectors: map[string]*selector{}, fixed: map[string]*fixedSets{}, ofNamespace: map[string]*labelset.Selectors[*selector]{},
		namespaceSelectors: map[string]*namespaceSelector{}, nodes: newNodes(tables),
		counted: map[string][]*Pod{}, dropped: map[*dataplane.Set]struct{}{}, left: map[*Pod]struct{}{}}
}

// Provision makes policies users of sets, and makes those that are not there. Members of a list come before it.
func (x *Sets) Provision(sets []rules.Set, users ...*dataplane.Owner) (p Provisioned) {
	for _, s := range sets {
		switch spec := s.SetSpec.(type) {
		case rules.SelectorSpec:
			sel := x.selector(s, spec)
			sel.owners.add(users)
			p.selectors = append(p.selectors, sel)
			continue
		case rules.PeersSpec:
			sel := x.union(s, spec)
			sel.owners.add(users)
			p.selectors = append(p.selectors, sel)
			continue
		case rules.NodesSpec:
			of := x.nodes.use(s, spec)
			of.owners.add(users)
			p.nodes = append(p.nodes, of)
			continue
		}
		of := x.fixed[s.ID]
		if of == nil {
			of = x.addFixed(s)
			x.fixed[s.ID] = of
		}
		of.owners.add(users)
		p.fixed = append(p.fixed, of)
	}
	return p
}

// Deprovision ends a use of sets by policies, and removes those that are no longer in use.
func (x *Sets) Deprovision(p Provisioned, users ...*dataplane.Owner) {
	for _, s := range p.selectors {
		s.owners.remove(users)
		x.release(s)
	}
	for _, s := range p.nodes {
		x.nodes.release(s, users)
	}
	for _, of := range p.fixed {
		if of.owners.remove(users); len(of.owners) > 0 {
			continue
		}
		delete(x.fixed, of.id)
		for _, set := range slices.Concat(of.sets[:], of.past[:]) {
			if set != nil {
				set.Drop()
			}
		}
	}
}

// addFixed makes the sets of address blocks, of domain names or of a list of peers.
func (x *Sets) addFixed(s rules.Set) *fixedSets {
	out := &fixedSets{id: s.ID, owners: owners{}}
	switch spec := s.SetSpec.(type) {
	case rules.BlockSpec:
		f := spec.Family()
		out.sets[f] = x.tables[f].Sets.Add(s.Name(f), ipset.HashNet, spec.String())
		for _, e := range spec.Entries {
			out.sets[f].Add(ipset.Net(e.Prefix),
				ipset.Attr{Comment: iptables.Comment(spec.About(e)), NoMatch: e.NoMatch})
		}
	case rules.NamesSpec:
		past := rules.PastNamesSpec(spec)
		for f, t := range x.tables {
			of := ipset.Set{Name: s.Name(t.Family), Type: ipset.HashIP, Timeout: naming.LearnedTimeout}
			out.sets[f] = t.Sets.AddExpiring(of, spec.String(), x.config.Learned(spec.Names, t.Family, false))
			of.Name, of.Timeout = rules.NewSet(past).Name(t.Family), naming.PastTimeout
			out.past[f] = t.Sets.AddExpiring(of, past.String(), x.config.Learned(spec.Names, t.Family, true))
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
	s = x.newSelector(set, setType(spec))
	s.SelectorSpec = spec
	for _, of := range s.sets {
		of.SetRole(order.Role{Target: spec.Scope == rules.TargetScope})
	}
	x.publish(s)
	if spec.Scope != rules.ListScope {
		fill(x, s, x.matching(s))
		return s
	}
	for ns := range x.scope(s) {
		x.list(s, ns)
	}
	return s
}

// maxCounted is how many pods of sets that were counted are remembered.
const maxCounted = 1 << 18

// remember has a set filled with the pods that were counted for it, if it is provisioned next.
func remember(x *Sets, set string, pods []*Pod) {
	if x.countedOf += 1 + len(pods); x.countedOf > maxCounted {
		forget(x)
		return
	}
	x.counted[set] = pods
}

// forget has pods found again for all sets.
func forget(x *Sets) {
	clear(x.counted)
	x.countedOf = 0
}

// fill puts the pods that a new selector selects into its sets: those that were counted, or else those given.
func fill(x *Sets, s *selector, selected iter.Seq[*Pod]) {
	if counted, known := x.counted[s.id]; known {
		selected = slices.Values(counted)
	}
	for p := range selected {
		s.add(p)
	}
}

// union returns what stands for several selectors, which have one set in common, making it if need be.
func (x *Sets) union(set rules.Set, spec rules.PeersSpec) *selector {
	if known := x.selectors[set.ID]; known != nil {
		return known
	}
	u := x.newSelector(set, ipset.HashIP)
	for of := range spec.Selectors() {
		part := &selector{SelectorSpec: of, union: u, sets: u.sets}
		u.parts = append(u.parts, part)
		x.publish(part)
	}
	fill(x, u, x.selected(u.parts))
	return u
}

// refill puts the pods of a namespace into the unions that have a part that selects them, and takes others out.
func (x *Sets) refill(unions map[*selector]struct{}, ns *namespace) {
	for _, p := range ns.pods {
		selecting := map[*selector]struct{}{}
		x.each(p, func(s *selector) {
			if _, asked := unions[s.union]; asked && s.matches(p) {
				selecting[s.union] = struct{}{}
			}
		})
		for u := range unions {
			switch _, is := selecting[u]; {
			case is && !u.has(p):
				u.add(p)
			case !is:
				u.remove(p)
			}
		}
	}
}

// newSelector makes a selector with sets that are empty. One of them may have been dropped before.
func (x *Sets) newSelector(set rules.Set, t ipset.Type) *selector {
	x.purge()
	s := &selector{id: set.ID, owners: owners{}}
	x.selectors[set.ID] = s
	for f, of := range x.tables {
		s.sets[f] = of.Sets.Add(set.Name(npc.Family(f)), t, set.String())
	}
	return s
}

// release removes an unused selector.
func (x *Sets) release(s *selector) {
	if len(s.owners)+len(s.lists) > 0 {
		return
	}
	delete(x.selectors, s.id)
	for _, part := range s.parts {
		x.withdraw(part)
	}
	if s.parts == nil {
		x.withdraw(s)
	}
	if s.Scope != rules.ListScope {
		x.empty(s)
	}
	for _, set := range s.sets {
		set.Drop()
	}
}

// withdraw has pods and namespaces no longer find a selector.
func (x *Sets) withdraw(s *selector) {
	switch s.Scope {
	case rules.ListScope:
		for ns := range s.members {
			x.unlist(s, ns)
		}
	case rules.ClusterScope:
		x.cluster.Remove(s, s.Pods)
	default:
		if of := x.ofNamespace[s.Namespace]; of != nil {
			if of.Remove(s, s.Pods); of.Empty() {
				delete(x.ofNamespace, s.Namespace)
			}
		}
	}
	if s.namespaces != nil {
		if delete(s.namespaces.users, s); len(s.namespaces.users) == 0 {
			delete(x.namespaceSelectors, s.namespaces.text)
		}
	}
}

// publish puts a new selector where pods and namespaces will find it.
func (x *Sets) publish(s *selector) {
	if s.Namespaces != nil {
		s.namespaces = x.namespaceSelector(s.Namespaces)
		s.namespaces.users[s] = struct{}{}
	}
	switch s.Scope {
	case rules.ListScope:
		s.members = map[*namespace]*selector{}
	case rules.ClusterScope:
		x.cluster.Add(s, s.Pods)
	default:
		if x.ofNamespace[s.Namespace] == nil {
			x.ofNamespace[s.Namespace] = &labelset.Selectors[*selector]{}
		}
		x.ofNamespace[s.Namespace].Add(s, s.Pods)
	}
}

// empty takes all pods out of the sets of a selector, which are to be dropped.
func (x *Sets) empty(s *selector) {
	for _, set := range s.sets {
		x.dropped[set] = struct{}{}
		for e := range set.States() {
			if p := x.addresses.Owner(e.Prefix.Addr()); p != nil {
				x.left[p] = struct{}{}
				set.Remove(e)
			}
		}
	}
}

// purge has pods no longer have memberships in sets that were dropped.
func (x *Sets) purge() {
	for p := range x.left {
		p.leave(x.dropped, true)
	}
	clear(x.left)
	clear(x.dropped)
}

// memberships adds the memberships that selectors give a pod.
func (x *Sets) memberships(p *Pod, out []Membership) []Membership {
	if len(p.owned) == 0 {
		return out
	}
	x.joined = x.joined[:0]
	join := func(s *selector) {
		if !s.matches(p) || s.union != nil && slices.Contains(x.joined, s.union) {
			return
		}
		if s.union != nil {
			x.joined = append(x.joined, s.union)
		}
		out = s.entries(p, out)
	}
	x.each(p, join)
	return out
}

// each calls a function with the selectors that may match a pod.
func (x *Sets) each(p *Pod, do func(*selector)) {
	if of := x.ofNamespace[p.Namespace]; of != nil {
		of.Each(p.labels, do)
	}
	x.cluster.Each(p.labels, do)
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
