package controller

import (
	"maps"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/clusterpolicy"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/networkpolicy"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
)

// group is what would be enforced if the staged policies of one group were applied. A nil group changes nothing.
type group struct {
	name  string
	parts map[string]*part // by namespace; that of ClusterNetworkPolicies has none
	sides sides
	found uint64 // after how many changes the sides were found
	// content is a text that changes with the policies; it is empty until it is asked for.
	content string
}

// part is what the policies of a namespace, or the ClusterNetworkPolicies, change in a group.
type part struct {
	group, content string
	// added are the NetworkPolicies that are added, and tiers the ClusterNetworkPolicies, each in order of their names.
	added []*networkpolicy.Policy
	tiers []*clusterpolicy.Policy
	// taken are the enforced policies that are taken away, and the staged policy that does.
	taken map[named]string
}

// named is an enforced policy.
type named struct {
	namespace string // empty for a ClusterNetworkPolicy
	policy    string // with its namespace if it has one
}

func newPart(group string) *part { return &part{group: group, taken: map[named]string{}} }

// add adds what a staged policy does.
func (x *part) add(p *stagedPolicy) {
	x.content = naming.Hash(x.content, p.key.Policy(), p.content)
	if p.Takes != "" {
		gone := named{p.key.Namespace, staged.Key{Namespace: p.key.Namespace, Name: p.Takes}.Policy()}
		if x.taken[gone] == "" {
			x.taken[gone] = p.key.Policy()
		}
	}
	switch {
	case !p.Adds:
	case p.cluster != nil:
		x.tiers = append(x.tiers, p.cluster)
	default:
		x.added = append(x.added, p.namespace)
	}
}

// set replaces the part of a namespace, by none if it is nil. What was found of pods is forgotten.
func (w *group) set(namespace string, p *part) {
	if p == nil {
		delete(w.parts, namespace)
	} else {
		w.parts[namespace] = p
	}
	w.content = ""
	clear(w.sides)
}

// sidesAt returns what was found of pods since so many changes.
func (w *group) sidesAt(changes uint64) sides {
	if w.found != changes {
		clear(w.sides)
		w.found = changes
	}
	return w.sides
}

// contentOfAll returns a text that changes when a policy of the group changes.
func (w *group) contentOfAll() string {
	if w.content == "" {
		var texts []string
		for _, namespace := range slices.Sorted(maps.Keys(w.parts)) {
			texts = append(texts, namespace, w.parts[namespace].content)
		}
		w.content = naming.Hash(texts...)
	}
	return w.content
}

// concerns reports whether anything may be otherwise for a pod.
func (w *group) concerns(p *index.Pod) bool { return w.parts[""] != nil || w.parts[p.Namespace] != nil }

// taker returns the staged policy that takes an enforced one away; empty if none does.
func (w *group) taker(p named) string {
	if w == nil || w.parts[p.namespace] == nil {
		return ""
	}
	return w.parts[p.namespace].taken[p]
}

// isolating returns the policies that are added and isolate a pod in a direction.
func (w *group) isolating(p *index.Pod, d npc.Direction) (out []*networkpolicy.Policy) {
	if w == nil || w.parts[p.Namespace] == nil {
		return nil
	}
	for _, q := range w.parts[p.Namespace].added {
		if q.Isolates[d] && p.SelectedBy(q.Target) {
			out = append(out, q)
		}
	}
	return out
}

// rules returns the rules of a tier that are asked about a pod in a direction, in order.
func (w *group) rules(enforced *clusterpolicy.Tiers, p *index.Pod, tier policy.Tier,
	d npc.Direction) (out []*verdict.NamedRule) {
	var all []*clusterpolicy.Policy
	for q := range enforced.Asked(p, tier, d) {
		if w.taker(named{policy: q.Name}) == "" {
			all = append(all, q)
		}
	}
	added := w.choosing(p, tier)
	if len(added) > 0 {
		all = append(all, added...)
		slices.SortStableFunc(all, func(a, b *clusterpolicy.Policy) int { return a.Compare(&b.Cluster) })
	}
	for _, q := range all {
		rules := q.Evaluated(d)
		if slices.Contains(added, q) {
			rules = asStaged(rules)
		}
		out = append(out, rules...)
	}
	return out
}

// choosing returns the policies of a tier that are added and choose a pod.
func (w *group) choosing(p *index.Pod, tier policy.Tier) (out []*clusterpolicy.Policy) {
	if w == nil || w.parts[""] == nil {
		return nil
	}
	for _, q := range w.parts[""].tiers {
		if q.Tier == tier && q.Selects(p) {
			out = append(out, q)
		}
	}
	return out
}

// asStaged marks the rules of a staged policy.
func asStaged(rules []*verdict.NamedRule) []*verdict.NamedRule {
	for _, r := range rules {
		r.Staged = true
	}
	return rules
}

// Differences returns the verdict on a flow, and the groups that would change it, sorted by name.
func (l Lookup) Differences(f verdict.Flow) (v verdict.Verdict, out []verdict.Difference) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	j := &l.c.evaluator
	j.groups.find()
	is := j.hear(f, nil, verdict.NoBound)
	for _, w := range j.groups.about(j.index.Addresses.Owner(f.From), j.index.Addresses.Owner(f.To)) {
		if would := j.hear(f, w, verdict.NoBound); would.Allowed != is.Allowed {
			out = append(out, verdict.Difference{Group: w.name, Content: w.contentOfAll(),
				Policy: j.decides(f, w, is, would), Verdict: would.named()})
		}
	}
	return is.named(), out
}

// about returns the groups that concern at least one of the given pods of this node, sorted by name. Pods may be nil.
func (ws *groups) about(pods ...*index.Pod) (out []*group) {
	if len(ws.byName) == 0 {
		return nil
	}
	namespaces := []string{""}
	for _, p := range pods {
		if p != nil && p.Local() && !slices.Contains(namespaces, p.Namespace) {
			namespaces = append(namespaces, p.Namespace)
		}
	}
	for _, namespace := range namespaces {
		if of := ws.spaces[namespace]; of != nil {
			for _, x := range of.parts {
				out = append(out, ws.byName[x.group])
			}
		}
	}
	slices.SortFunc(out, func(a, b *group) int { return strings.Compare(a.name, b.name) })
	return slices.Compact(out)
}

// Groups returns the content of each group of staged policies: a text that changes when the policies change. It returns
// nil before SetSynced.
func (l Lookup) Groups() map[string]string {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if !l.c.state.synced {
		return nil
	}
	ws := &l.c.evaluator.groups
	ws.find()
	out := make(map[string]string, len(ws.byName))
	for name, w := range ws.byName {
		out[name] = w.contentOfAll()
	}
	return out
}

// decides returns the staged policy that changes the verdict on a flow in a group.
func (j *evaluator) decides(f verdict.Flow, w *group, is, would hearing) string {
	d, a := is.Direction, f.From // the side that denies the flow
	if !would.Allowed {
		d = would.Direction
	}
	if d == npc.Ingress {
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
		if name := w.taker(named{own.Namespace, q.Key()}); name != "" && q.Isolates[d] {
			return name
		}
	}
	return ""
}

// decidedBy returns the staged policy that one rule is of, or that takes away the policy of another; empty if neither
// is.
func (w *group) decidedBy(before, after *verdict.NamedRule) string {
	if after != nil && after.Staged {
		return after.Policy
	}
	if before == nil {
		return ""
	}
	if before.Tier != "" {
		return w.taker(named{policy: before.Policy})
	}
	namespace, _, _ := strings.Cut(before.Policy, "/")
	return w.taker(named{namespace, before.Policy})
}
