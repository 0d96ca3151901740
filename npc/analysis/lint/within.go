package lint

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// relation reports whether a selector, peer or port matches all that another one matches, for any pods. It may miss
// that, and never reports it wrongly. It remembers what selectors require.
type relation struct {
	view  *cluster.View
	known map[*policy.Selector]constraints
}

func newRelation(view *cluster.View) *relation {
	return &relation{view: view, known: map[*policy.Selector]constraints{}}
}

// constraints returns what a selector requires. Nil is a selector of everything.
func (r *relation) constraints(s *policy.Selector) constraints {
	if s == nil {
		return constraints{}
	}
	c, ok := r.known[s]
	if !ok {
		c = constraintsOf(*s)
		r.known[s] = c
	}
	return c
}

func (r *relation) selectorWithin(a, b *policy.Selector) bool {
	return r.constraints(a).within(r.constraints(b))
}

// peerWithin reports whether a peer matches no more than another one.
func (r *relation) peerWithin(a, b policy.Peer) bool {
	switch {
	case a.IsUnknown() || b.IsUnknown():
		return false
	case a.Block != nil || b.Block != nil:
		return a.Block != nil && b.Block != nil && blockWithin(*a.Block, *b.Block)
	case a.Nodes != nil || b.Nodes != nil:
		return a.Nodes != nil && b.Nodes != nil && r.selectorWithin(a.Nodes, b.Nodes)
	case a.Name != "" || b.Name != "":
		return a.Name != "" && b.HasName(a.Name)
	}
	return r.namespacesWithin(a, b) && r.selectorWithin(a.Pods, b.Pods)
}

// namespacesWithin reports whether a peer's namespaces are among those of another one. Labels of existing namespaces
// may change, except for the one that is the name.
func (r *relation) namespacesWithin(a, b policy.Peer) bool {
	switch {
	case a.Namespaces == nil && b.Namespaces == nil:
		return a.Namespace == b.Namespace
	case a.Namespaces != nil && b.Namespaces != nil:
		return r.selectorWithin(a.Namespaces, b.Namespaces)
	case a.Namespaces == nil:
		n, known := r.view.Namespaces[a.Namespace]
		return known && b.Namespaces.Matches(n.Labels) &&
			!slices.ContainsFunc(b.Namespaces.Keys(), func(k string) bool { return k != corev1.LabelMetadataName })
	}
	names, ok := r.constraints(a.Namespaces)[corev1.LabelMetadataName]
	return ok && names.within(constraint{values: map[string]bool{b.Namespace: true}})
}

// blockWithin reports whether all addresses of a block are in another one.
func blockWithin(a, b ipblock.Block) bool {
	if !prefixWithin(a.CIDR, b.CIDR) {
		return false
	}
	for _, e := range b.Except {
		if e.Overlaps(a.CIDR) &&
			!slices.ContainsFunc(a.Except, func(f netip.Prefix) bool { return prefixWithin(e, f) }) {
			return false
		}
	}
	return true
}

func prefixWithin(a, b netip.Prefix) bool {
	return a.Bits() >= b.Bits() && b.Contains(a.Addr())
}

// portWithin reports whether an item of ports matches no more than another one. What a name means depends on the pod.
func portWithin(p, q policy.Port) bool {
	switch {
	case q.Name != "":
		return p.Name == q.Name && q.HasProtocol(p.Protocol)
	case p.Name != "" || q.First == 0:
		return q.First == 0 && p.Protocol == q.Protocol
	}
	return p.Protocol == q.Protocol && p.First != 0 && q.First <= p.First && p.Last <= q.Last
}

// within reports whether a rule matches all of one peer, or of any peer if it is nil, at one port, or at any protocol
// and port if it is nil.
func (r *relation) within(peer *policy.Peer, port *policy.Port, rule *policy.Rule) bool {
	portFits := len(rule.Ports) == 0 ||
		port != nil && slices.ContainsFunc(rule.Ports, func(q policy.Port) bool { return portWithin(*port, q) })
	return portFits && // asked first: it is the quicker one
		(len(rule.Peers) == 0 ||
			peer != nil && slices.ContainsFunc(rule.Peers, func(q policy.Peer) bool { return r.peerWithin(*peer, q) }))
}

// covered returns rules, of others but for those that are gone, that match together all that a rule matches; none if
// they do not.
func (r *relation) covered(rule *policy.Rule, others []*policy.Rule, gone map[*policy.Rule]bool) []*policy.Rule {
	peers, ports := []*policy.Peer{nil}, []*policy.Port{nil}
	if len(rule.Peers) > 0 {
		peers = pointers(rule.Peers)
	}
	if len(rule.Ports) > 0 {
		ports = pointers(rule.Ports)
	}
	used := map[*policy.Rule]bool{}
	for _, peer := range peers {
		for _, port := range ports {
			i := slices.IndexFunc(others, func(o *policy.Rule) bool {
				return o != rule && r.within(peer, port, o) && !gone[o]
			})
			if i < 0 {
				return nil
			}
			used[others[i]] = true
		}
	}
	return slices.Collect(maps.Keys(used))
}

func pointers[T any](all []T) []*T {
	out := make([]*T, len(all))
	for i := range all {
		out[i] = &all[i]
	}
	return out
}

// constraint is what a selector requires of one label: it is absent, or has a value that is one of some, or none of
// some.
type constraint struct {
	absent bool            // it may be absent
	others bool            // it may have any value that is not among values
	values map[string]bool // that it may have; if others is set, that it may not have
}

// free is the constraint that requires nothing.
func free() constraint { return constraint{absent: true, others: true, values: map[string]bool{}} }

func (c constraint) allows(value string) bool { return c.values[value] != c.others }

// and restricts the constraint by a requirement.
func (c constraint) and(r labels.Requirement) constraint {
	given := r.ValuesUnsorted()
	switch r.Operator() {
	case selection.Exists:
		c.absent = false
	case selection.DoesNotExist:
		c.others, c.values = false, nil
	case selection.In, selection.Equals, selection.DoubleEquals:
		values := map[string]bool{}
		for _, v := range given {
			if c.allows(v) {
				values[v] = true
			}
		}
		c = constraint{values: values}
	case selection.NotIn, selection.NotEquals:
		values := map[string]bool{}
		for v := range c.values {
			if c.others || !slices.Contains(given, v) {
				values[v] = true
			}
		}
		if c.others {
			for _, v := range given {
				values[v] = true
			}
		}
		c.values = values
	}
	return c
}

// isEmpty reports whether no label meets the constraint.
func (c constraint) isEmpty() bool { return !c.absent && !c.others && len(c.values) == 0 }

// within reports whether all that meets the constraint meets another one.
func (c constraint) within(d constraint) bool {
	if c.absent && !d.absent || c.others && !d.others {
		return false
	}
	if !c.others {
		for v := range c.values {
			if !d.allows(v) {
				return false
			}
		}
		return true
	}
	for v := range d.values { // both allow all but some values
		if !c.values[v] {
			return false
		}
	}
	return true
}

// constraints is what a selector requires, by the keys of labels. Nil is what nothing meets.
type constraints map[string]constraint

func constraintsOf(s policy.Selector) constraints {
	if _, possible := s.Unmet(nil); !possible {
		return nil
	}
	all := constraints{}
	if s.Selector == nil {
		return all
	}
	requirements, selectable := s.Requirements()
	if !selectable {
		return nil
	}
	for _, r := range requirements {
		c, ok := all[r.Key()]
		if !ok {
			c = free()
		}
		if c = c.and(r); c.isEmpty() {
			return nil
		}
		all[r.Key()] = c
	}
	return all
}

// within reports whether all labels that meet the constraints meet others.
func (all constraints) within(others constraints) bool {
	if all == nil {
		return true
	}
	if others == nil {
		return false
	}
	for key, d := range others {
		c, ok := all[key]
		if !ok {
			c = free()
		}
		if !c.within(d) {
			return false
		}
	}
	return true
}
