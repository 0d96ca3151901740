package tiers

import (
	"slices"

	"github.com/weave-npc/weave-npc/npc/dataplane/order"
	"github.com/weave-npc/weave-npc/npc/index"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// Assign finds the lists of the pods that may have others now, and writes the rules that changed. It returns the pods that have other
// lists, or are denied something else. Prune is to be called once they have been placed.
func (t *Tiers) Assign() []*index.Pod {
	if len(t.changed)+len(t.rewrite) == 0 {
		return nil
	}
	moved := map[*podState]struct{}{}
	for st := range t.changed {
		if t.assign(st) {
			moved[st] = struct{}{}
		}
	}
	for _, tier := range policy.Tiers {
		for _, ls := range t.lists[tier] {
			ls.distribute(t.base, func(st *podState) { moved[st] = struct{}{} })
		}
	}
	if t.closed.follow(t.tables, t.Judging().Node) {
		for _, st := range t.pods {
			moved[st] = struct{}{}
		}
	}
	t.rank()
	clear(t.changed)
	clear(t.rewrite)
	out := make([]*index.Pod, 0, len(moved))
	for st := range moved {
		out = append(out, st.Pod)
	}
	return out
}

// assign finds a pod's combinations of policies. It reports whether they, or what they may do, are others than before.
func (t *Tiers) assign(st *podState) (moved bool) {
	var chosen [len(policy.Tiers)][]*enforced
	for _, p := range t.policies {
		if _, is := p.selected[st]; is {
			chosen[p.Tier] = append(chosen[p.Tier], p)
		}
	}
	var effect Effect
	for _, tier := range policy.Tiers {
		slices.SortFunc(chosen[tier], before)
		for d, ls := range t.lists[tier] {
			of := slices.DeleteFunc(slices.Clone(chosen[tier]), func(p *enforced) bool { return len(p.Rules[d]) == 0 })
			effect.add(of, tier, traffic.Direction(d))
			was, is := st.combinations[tier][d], ls.combine(of)
			if was == is {
				continue
			}
			moved = true
			if was != nil {
				delete(was.pods, st)
			}
			if is != nil {
				is.pods[st] = struct{}{}
			}
			st.combinations[tier][d] = is
		}
	}
	if effect == st.Effect {
		return moved
	}
	t.counts.add(st.Effect, -1)
	t.counts.add(effect, 1)
	st.Effect = effect
	return true
}

// Prune drops what no pod is in any more.
func (t *Tiers) Prune() {
	for _, tier := range policy.Tiers {
		for _, ls := range t.lists[tier] {
			ls.prune()
		}
	}
	t.closed.prune(t.Judging().Node)
}

// rank gives the sets of the rules their roles: what the rules do with members, and in which order they come. Subjects come in the same order.
func (t *Tiers) rank() {
	var active []*enforced
	for _, p := range t.policies {
		if p.active {
			active = append(active, p)
		}
	}
	slices.SortFunc(active, before)
	next := 0
	for _, p := range active {
		next++
		t.rankSubject(p, next)
		roles := map[string]order.Role{}
		for d := range traffic.Directions {
			for _, u := range p.rendered.Users[d] {
				next++
				roles[u.ID] = order.Role{Cluster: true, Baseline: u.Tier == policy.Baseline, Action: u.Action, Rank: next}
			}
		}
		for id, set := range p.sets.OfRules() {
			set.SetRole(roles[id])
		}
	}
}

// rankSubject ranks the pods that a policy chooses among the subjects of shared lists.
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
