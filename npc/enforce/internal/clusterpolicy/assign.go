package clusterpolicy

import (
	"maps"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/order"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Assign finds the lists of the pods that may have others now, and writes the rules that changed. It returns the pods
// that have other lists, or are denied something else. Prune is to be called once they have been placed.
func (t *Tiers) Assign() []*index.Pod {
	if len(t.changed) == 0 {
		return nil
	}
	moved := map[*index.Pod]struct{}{}
	ordered := choosing(t.policies)
	known := map[string]assignment{}
	for st := range t.changed {
		if t.assign(st, ordered, known) {
			moved[st.Pod] = struct{}{}
		}
	}
	for _, tier := range policy.Tiers {
		for _, ls := range t.lists[tier] {
			ls.distribute(t.base, func(p *index.Pod) { moved[p] = struct{}{} })
		}
	}
	names, closed := t.names.follow(t, ordered), t.closed.follow(t.tables, t.ActiveTiers().Node)
	if names || closed {
		for p := range t.pods {
			moved[p] = struct{}{}
		}
	}
	t.rank(ordered)
	clear(t.changed)
	return slices.Collect(maps.Keys(moved))
}

// assignment is what the policies that choose a pod make of it.
type assignment struct {
	combinations [len(policy.Tiers)][len(npc.Directions)]*combination
	Effect
}

// assign finds a pod's combinations of policies, which are ordered. It reports whether they, or what they may do, are
// others than before. What is known for one pod holds for others that the same policies choose.
func (t *Tiers) assign(st *podState, ordered []*enforced, known map[string]assignment) (moved bool) {
	selected := make([]byte, (len(ordered)+7)/8) // a bit for each policy
	for i, p := range ordered {
		if _, is := p.selected[st.Pod]; is {
			selected[i/8] |= 1 << (i % 8)
		}
	}
	next, is := known[string(selected)]
	switch {
	case st.Unlabelled && st.Local():
		next = assignment{Effect: effectOfAny(t.policies)}
	case !is:
		for _, tier := range policy.Tiers {
			for d, ls := range t.lists[tier] {
				of := st.policies(ordered, tier, npc.Direction(d))
				next.add(of, tier, npc.Direction(d))
				next.combinations[tier][d] = ls.combine(of)
			}
		}
		known[string(selected)] = next
	}
	was := st.assignment
	for _, tier := range policy.Tiers {
		for d, c := range next.combinations[tier] {
			if before := was.combinations[tier][d]; before != nil {
				delete(before.pods, st.Pod)
			}
			if c != nil {
				c.pods[st.Pod] = struct{}{}
			}
		}
	}
	t.counts.add(was.Effect, -1)
	t.counts.add(next.Effect, 1)
	st.assignment = next
	return was != next
}

// policies returns those of a tier that choose the pod and have rules in a direction.
func (st *podState) policies(from []*enforced, tier policy.Tier, d npc.Direction) (out []*enforced) {
	for _, p := range from {
		if _, is := p.selected[st.Pod]; is && p.Tier == tier && len(p.Rules[d]) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// choosing returns those of some policies that choose a local pod, in order.
func choosing(policies map[string]*enforced) (out []*enforced) {
	for _, p := range policies {
		if len(p.selected) > 0 {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, before)
	return out
}

// Prune drops what no pod is in any more.
func (t *Tiers) Prune() {
	for _, tier := range policy.Tiers {
		for _, ls := range t.lists[tier] {
			ls.prune()
		}
	}
	t.closed.prune(func() bool { return t.ActiveTiers().Node })
	t.names.prune(t)
}

// rank assigns roles to the sets of the rules of policies, which are in order: the action of the rule, and its rank.
// Subjects are ranked in the same order.
func (t *Tiers) rank(ordered []*enforced) {
	next := 0
	for _, p := range ordered {
		next++
		t.rankSubject(p, next)
		roles := map[string]order.Role{}
		for d := range npc.Directions {
			for _, u := range p.rendered.Users[d] {
				next++
				roles[u.ID] = order.Role{Cluster: true, Baseline: u.Tier == policy.Baseline, Action: u.Action,
					Rank: next}
			}
		}
		for id, set := range p.sets.OfRules() {
			set.SetRole(roles[id])
		}
	}
}

// rankSubject ranks the pods that a policy selects among the subjects of shared lists.
func (t *Tiers) rankSubject(p *enforced, rank int) {
	for _, ls := range t.lists[p.Tier] {
		shared := ls.byID[sharedID]
		if shared == nil || shared.subjects[p.id] == nil {
			continue
		}
		for _, s := range shared.subjects[p.id] {
			s.SetRole(order.Role{Cluster: true, Baseline: p.Tier == policy.Baseline, Rank: rank})
		}
	}
}
