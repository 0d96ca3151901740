package controller

import (
	"iter"
	"slices"

	"github.com/weave-npc/weave-npc/npc/index"
	"github.com/weave-npc/weave-npc/npc/isolation"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/staged"
	"github.com/weave-npc/weave-npc/npc/tiers"
	"github.com/weave-npc/weave-npc/npc/traffic"
	"github.com/weave-npc/weave-npc/npc/verdict"
)

// world is what would be enforced if the staged policies of one name were applied. A nil world changes nothing.
type world struct {
	name, content string
	// added are the NetworkPolicies that are added, by namespace, and tiers the ClusterNetworkPolicies, each in order of their names.
	added map[string][]*isolation.Policy
	tiers []*tiers.Policy
	// taken are the enforced policies that are taken away, and the staged policy that does.
	taken map[named]string
	// namespaces are those whose NetworkPolicies are changed, and everywhere is set if ClusterNetworkPolicies are.
	namespaces map[string]bool
	everywhere bool
	sides      sides
}

// named is an enforced policy.
type named struct {
	cluster bool
	policy  string // with its namespace if it has one
}

func newWorld(name string) *world {
	return &world{name: name, added: map[string][]*isolation.Policy{}, taken: map[named]string{}, namespaces: map[string]bool{}, sides: sides{}}
}

// add adds what a staged policy does.
func (w *world) add(p *stagedPolicy) {
	w.content = naming.Hash(w.content, p.key.Policy(), p.content)
	w.namespaces[p.key.Namespace] = true
	w.everywhere = w.everywhere || p.cluster != nil
	if p.Takes != "" {
		gone := named{p.cluster != nil, staged.Key{Namespace: p.key.Namespace, Name: p.Takes}.Policy()}
		if w.taken[gone] == "" {
			w.taken[gone] = p.key.Policy()
		}
	}
	switch {
	case !p.Adds:
	case p.cluster != nil:
		w.tiers = append(w.tiers, p.cluster)
	default:
		w.added[p.key.Namespace] = append(w.added[p.key.Namespace], p.namespace)
	}
}

// concerns reports whether anything may be otherwise for a pod.
func (w *world) concerns(p *index.Pod) bool { return w.everywhere || w.namespaces[p.Namespace] }

// takes reports whether an enforced policy is taken away.
func (w *world) takes(p named) bool { return w != nil && w.taken[p] != "" }

// isolating returns the policies that are added and isolate a pod in a direction.
func (w *world) isolating(p *index.Pod, d traffic.Direction) (out []*isolation.Policy) {
	if w == nil {
		return nil
	}
	for _, q := range w.added[p.Namespace] {
		if q.Isolates[d] && p.ChosenBy(q.Target) {
			out = append(out, q)
		}
	}
	return out
}

// asked yields the rules of each policy of a tier that is asked about a pod in a direction, in order.
func (w *world) asked(enforced *tiers.Tiers, p *index.Pod, tier policy.Tier, d traffic.Direction) iter.Seq[[]verdict.Rule] {
	return func(yield func([]verdict.Rule) bool) {
		var all []*tiers.Policy
		for q := range enforced.Asked(p, tier, d) {
			if !w.takes(named{true, q.Name}) {
				all = append(all, q)
			}
		}
		added := map[*tiers.Policy]bool{}
		if w != nil {
			for _, q := range w.tiers {
				if q.Tier == tier && q.Chooses(p) {
					all, added[q] = append(all, q), true
				}
			}
		}
		slices.SortStableFunc(all, func(a, b *tiers.Policy) int { return a.Compare(&b.Cluster) })
		for _, q := range all {
			rules := q.Judged(d)
			if added[q] {
				rules = asStaged(rules)
			}
			if !yield(rules) {
				return
			}
		}
	}
}

// asStaged marks the rules of a staged policy.
func asStaged(rules []verdict.Rule) []verdict.Rule {
	for i := range rules {
		rules[i].Staged = true
	}
	return rules
}

// Differences returns what policies make of a flow, and the worlds in which the verdict would be another one.
func (l Lookup) Differences(f verdict.Flow) (v verdict.Verdict, out []verdict.Difference) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	j := &l.c.judge
	j.worlds.find()
	is := j.hear(f, nil)
	for _, w := range j.worlds.all {
		if would := j.hear(f, w); would.Allowed != is.Allowed {
			out = append(out, verdict.Difference{World: w.name, Content: w.content, Policy: j.decides(f, w, is, would), Verdict: would.Verdict})
		}
	}
	return is.Verdict, out
}

// Worlds returns the content of each world of staged policies: a text that is another one once the policies change. It returns nil before SetSynced.
func (l Lookup) Worlds() map[string]string {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if !l.c.state.synced {
		return nil
	}
	ws := &l.c.judge.worlds
	ws.find()
	out := make(map[string]string, len(ws.all))
	for _, w := range ws.all {
		out[w.name] = w.content
	}
	return out
}

// decides returns the staged policy for which a flow has another verdict in a world.
func (j *judge) decides(f verdict.Flow, w *world, is, would hearing) string {
	d, a := is.Direction, f.From // the side that denies the flow
	if !would.Allowed {
		d = would.Direction
	}
	if d == traffic.Ingress {
		a = f.To
	}
	before, after := is.decisions[d], would.decisions[d]
	if name := w.decidedBy(before.By, after.By); name != "" {
		return name
	}
	for tier := range policy.Tiers {
		if name := w.decidedBy(before.Passed[tier], after.Passed[tier]); name != "" {
			return name
		}
	}
	own := j.index.Addresses.Owner(a)
	for _, q := range w.isolating(own, d) {
		return q.Key()
	}
	for q := range j.isolation.Selecting(own) {
		if name := w.taken[named{policy: q.Key()}]; name != "" && q.Isolates[d] {
			return name
		}
	}
	return ""
}

// decidedBy returns the staged policy that one rule is of, or that takes away the policy of another; empty if neither is.
func (w *world) decidedBy(before, after *verdict.Rule) string {
	if after != nil && after.Staged {
		return after.Policy
	}
	if before != nil {
		return w.taken[named{before.Tier != "", before.Policy}]
	}
	return ""
}
