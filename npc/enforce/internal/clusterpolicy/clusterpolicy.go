// Package clusterpolicy knows the cluster network policies, which local pods they choose, and where their rules are.
// Local pods that the same policies of a tier choose share a list: a chain with the rules of these policies, in order.
//
//	t.SetPolicy(policy)        // or t.Reselect(pod)
//	for _, p := range t.Assign() {
//		x.Place(p, t.Memberships(p, ...)) // pods that have other lists now
//	}
//	t.Prune()                  // what no pod is in any more
//
// It knows nothing about NetworkPolicies and the fail-closed filter, and does not place pods.
package clusterpolicy

import (
	"iter"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Tiers keeps the cluster network policies and the lists of local pods.
type Tiers struct {
	index    *index.Index
	tables   [len(npc.Families)]*dataplane.Table
	base     *rules.Base
	policies map[string]*enforced     // name -> policy
	pods     map[*index.Pod]*podState // local pods
	lists    [len(policy.Tiers)][len(npc.Directions)]*lists
	counts   counts
	closed   closed
	names    names
	// resolvers are those that the operator trusts.
	resolvers []netip.AddrPort
	// held is what rules evaluate that were found in the kernel and stay because input is missing.
	held rules.ActiveTiers
	// changed are the pods that may have other lists, or lists with other rules.
	changed map[*podState]struct{}
	reports enforce.InvalidPolicies
}

// podState are the policies of one local pod.
type podState struct {
	*index.Pod
	assignment
}

// New returns Tiers without policies. The resolvers are those that the operator trusts beside the cluster's own.
func New(x *index.Index, tables [len(npc.Families)]*dataplane.Table, base *rules.Base,
	resolvers []netip.AddrPort) *Tiers {
	t := &Tiers{index: x, tables: tables, base: base, resolvers: resolvers, policies: map[string]*enforced{},
		pods:    map[*index.Pod]*podState{},
		changed: map[*podState]struct{}{}, reports: enforce.NewInvalidPolicies()}
	for _, tier := range policy.Tiers {
		for _, d := range npc.Directions {
			t.lists[tier][d] = newLists(tier, d, tables, x.Sets)
		}
	}
	return t
}

// SetBase replaces the rules that chains end with from now on, and has the roots jump to the lists that are needed.
func (t *Tiers) SetBase(b *rules.Base) {
	t.base = b
	for _, tier := range policy.Tiers {
		for _, ls := range t.lists[tier] {
			ls.jump(b)
		}
	}
}

// ActiveTiers returns what the base's chains have to jump to.
func (t *Tiers) ActiveTiers() (j rules.ActiveTiers) {
	for _, tier := range policy.Tiers {
		for _, d := range npc.Directions {
			j.Lists[tier][d] = t.lists[tier][d].leads()
		}
	}
	j.Node, j.Names = t.counts.node > 0 || t.held.Node, t.names.text
	return j
}

// Look finds out whether the kernel still dispatches pods to lists, and reports whether this changes ActiveTiers.
func (t *Tiers) Look() bool {
	before := t.ActiveTiers()
	for _, tier := range policy.Tiers {
		for _, ls := range t.lists[tier] {
			ls.look()
		}
	}
	return t.ActiveTiers() != before
}

// Hold has what leads to lists that were found, and stay because input is missing, stay too.
func (t *Tiers) Hold(j rules.ActiveTiers) {
	for _, tier := range policy.Tiers {
		for _, d := range npc.Directions {
			t.held.Lists[tier][d] = t.held.Lists[tier][d] || j.Lists[tier][d]
			t.lists[tier][d].held = t.held.Lists[tier][d]
		}
	}
	t.SetBase(t.base)
	t.held.Node = t.held.Node || j.Node
	t.closed.follow(t.tables, t.ActiveTiers().Node)
}

// Release ends that. Prune is to be called then.
func (t *Tiers) Release() {
	t.held = rules.ActiveTiers{}
	for _, tier := range policy.Tiers {
		for _, ls := range t.lists[tier] {
			ls.held = false
		}
	}
}

// SetPolicy takes a policy as it now is.
func (t *Tiers) SetPolicy(p *Policy) {
	old := t.policies[p.Name]
	if old != nil && old.same(p) {
		return
	}
	next := newEnforced(p)
	t.policies[p.Name] = next
	if p.Invalid == nil {
		t.reports.Clear(p.Name)
	} else {
		t.reports.Put(p.Name, enforce.InvalidPolicy{Name: p.Name, UID: p.UID, Reason: p.Invalid.Error(), Cluster: true,
			Inert: p.Inert})
	}
	t.replace(old, next)
}

// Unreported returns the policies that are not enforced as specified and that were not returned before.
func (t *Tiers) Unreported() []enforce.InvalidPolicy { return t.reports.Take() }

// DeletePolicy removes the policy of a name, if it is there and has the UID; an empty UID stands for any.
func (t *Tiers) DeletePolicy(name string, uid types.UID) {
	if old := t.policies[name]; old != nil && (uid == "" || old.UID == uid) {
		delete(t.policies, name)
		t.reports.Remove(name)
		t.replace(old, nil)
	}
}

// replace puts a policy in the place of another; either may be nil. What both use stays.
func (t *Tiers) replace(old, next *enforced) {
	for q, st := range t.pods {
		if q.Unlabelled {
			t.changed[st] = struct{}{}
		}
	}
	if next != nil {
		for q, st := range t.pods {
			if next.Selects(q) {
				next.selected[q] = struct{}{}
				t.changed[st] = struct{}{}
			}
		}
		t.activate(next)
	}
	if old != nil {
		for q := range old.selected {
			t.changed[t.pods[q]] = struct{}{}
		}
		t.deactivate(old)
	}
}

// activate provisions the sets of a policy that selects a local pod.
func (t *Tiers) activate(p *enforced) {
	if p.active || len(p.selected) == 0 || p.Inert {
		return
	}
	rendered := rules.RenderCluster(&p.Cluster)
	p.active, p.rendered, p.sets = true, rendered, t.index.Sets.Provision(rendered.Sets, p.owner)
}

func (t *Tiers) deactivate(p *enforced) {
	if !p.active {
		return
	}
	p.active = false
	t.index.Sets.Deprovision(p.sets, p.owner)
	p.sets = index.Provisioned{}
}

// UpdateNamespace follows a change of a namespace's labels.
func (t *Tiers) UpdateNamespace(name string) {
	if len(t.policies) == 0 {
		return
	}
	for q := range t.pods {
		if q.Namespace == name {
			t.Reselect(q)
		}
	}
}

// Reselect finds out which policies choose a pod that became local or is local no more, or has other labels.
func (t *Tiers) Reselect(q *index.Pod) {
	st := t.pods[q]
	if st == nil {
		if !q.Local() {
			return
		}
		st = &podState{Pod: q}
		t.pods[q] = st
	}
	if len(t.policies) > 0 {
		t.changed[st] = struct{}{}
	}
	for _, p := range t.policies {
		switch _, was := p.selected[q]; {
		case p.Selects(q) && !was:
			p.selected[q] = struct{}{}
			t.activate(p)
		case was && !p.Selects(q):
			if delete(p.selected, q); len(p.selected) == 0 {
				t.deactivate(p)
			}
		}
	}
	if !q.Local() {
		delete(t.pods, q)
	}
}

// Of returns what policies may do to a pod.
func (t *Tiers) Of(p *index.Pod) Effect {
	if st := t.pods[p]; st != nil {
		return st.Effect
	}
	return Effect{}
}

// Asked yields the policies of a tier that are asked about a local pod in a direction, in order.
func (t *Tiers) Asked(q *index.Pod, tier policy.Tier, d npc.Direction) iter.Seq[*Policy] {
	return func(yield func(*Policy) bool) {
		st := t.pods[q]
		if st == nil || st.combinations[tier][d] == nil {
			return
		}
		for _, p := range st.combinations[tier][d].policies {
			if !yield(p.Policy) {
				return
			}
		}
	}
}

// Memberships adds the memberships that lists give a local pod to out, except in directions that a contest of an address
// closes, and except for Baseline lists in directions where NetworkPolicies isolate it. A contested address does not
// reach the node if policies may deny that to another pod that claims it, or to the pod itself while it is closed.
func (t *Tiers) Memberships(p *index.Pod, isolated [len(npc.Directions)]bool, contested map[netip.Addr]index.Contest,
	out []index.Membership) []index.Membership {
	st := t.pods[p]
	if st == nil {
		return out
	}
	for _, a := range p.Owned() {
		f, e, contest := npc.FamilyOf(a), ipset.Addr(a), contested[a]
		for _, tier := range policy.Tiers {
			for d, c := range st.combinations[tier] {
				if c != nil && !contest.Denied[d] && (tier == policy.Admin || !isolated[d]) {
					out = c.memberships(f, e, out)
				}
			}
		}
		if t.names.pods[f] != nil && len(st.names()) > 0 && !contest.Denied[npc.Egress] {
			out = append(out, index.Membership{Set: t.names.pods[f], Entry: e})
		}
		if t.closed[f] != nil && (contest.Node ||
			(contest.Denied[npc.Egress] || p.Unlabelled) && st.DeniesNode(isolated)) {
			out = append(out, index.Membership{Set: t.closed[f], Entry: e})
		}
	}
	return out
}

// memberships adds those of an address of a pod with the combination to out.
func (c *combination) memberships(f npc.Family, e ipset.Entry, out []index.Membership) []index.Membership {
	out = append(out, index.Membership{Set: c.list.pods[f], Entry: e},
		index.Membership{Set: c.list.lists.pods[f], Entry: e})
	if c.list.id == sharedID {
		for _, p := range c.policies {
			out = append(out, index.Membership{Set: c.list.subjects[p.id][f], Entry: e})
		}
	}
	return out
}

// Any reports whether there are policies.
func (t *Tiers) Any() bool { return len(t.policies) > 0 }

// Counts are numbers for metrics, and for the fail-closed filter.
type Counts struct {
	// Policies is the number of policies in the cluster, and Invalid that of those that are not enforced as specified.
	Policies, Invalid int
	// Denied is the number of local pods that a policy may deny something.
	Denied [len(npc.Directions)]int
}

// Counts returns them.
func (t *Tiers) Counts() Counts {
	return Counts{Policies: len(t.policies), Invalid: t.reports.Len(), Denied: t.counts.denied}
}

// RuleName returns the name that a rule of a policy has in the object, by its number from 1. It may be empty.
func (t *Tiers) RuleName(policy string, d npc.Direction, number int) string {
	return t.policies[policy].Rules[d][number-1].Name
}

// Inert returns the names of those that decide nothing, because their tier or their subject is not understood, in
// order.
func (t *Tiers) Inert() (names []string) {
	for name, p := range t.policies {
		if p.Inert {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
