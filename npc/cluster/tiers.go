package cluster

import (
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Choosing returns the cluster network policies whose subject a pod is, in order. The pod must neither be on the
// network of its node nor have finished.
func (v *View) Choosing(p *npc.Pod) []*policy.Cluster {
	v.mu.Lock()
	defer v.mu.Unlock()
	out, ok := v.choosing[p]
	if ok {
		return out
	}
	for _, q := range v.ClusterPolicies {
		if v.Selects(q, p) == policy.Always {
			out = append(out, q)
		}
	}
	v.choosing[p] = out
	return out
}

// Selects reports whether a pod is the subject of a cluster network policy.
func (v *View) Selects(q *policy.Cluster, p *npc.Pod) policy.Fit {
	if q.Inert || p.Unlabelled || !q.Pods.Matches(p.Labels) {
		return policy.Never
	}
	return NamespaceFits(v, q.Namespaces, p.Namespace)
}

// Rule is a rule that applies to a pod.
type Rule struct {
	*policy.Rule
	// Of is the cluster network policy that has it; nil for a rule of a NetworkPolicy.
	Of *policy.Cluster
	// Number counts the rules of the policy and direction from 1.
	Number int
}

// Does returns what the rule does with what it matches.
func (r Rule) Does() policy.Action { return r.Action }

// Applied returns the rules that apply to a pod in a direction. The pod must be one that Choosing takes.
func (v *View) Applied(p *npc.Pod, d npc.Direction) (of policy.Applied[Rule]) {
	isolating, isolated := v.Isolating(p, d)
	of.Isolated = policy.FitOf(isolated)
	for _, q := range isolating {
		for i := range q.Rules[d] {
			of.Allowing = append(of.Allowing, Rule{Rule: &q.Rules[d][i], Number: i + 1})
		}
	}
	for _, q := range v.Choosing(p) {
		of.Tiers[q.Tier] = append(of.Tiers[q.Tier], WrittenRules(q, d)...)
	}
	return of
}

// WrittenRules returns the rules of a cluster network policy for a direction, as they are written.
func WrittenRules(q *policy.Cluster, d npc.Direction) (rules []Rule) {
	for i := range q.Written[d] {
		rules = append(rules, Rule{&q.Written[d][i].Rule, q, i + 1})
	}
	return rules
}

// Restricted reports whether policies may deny a pod something in a direction: a NetworkPolicy isolates it, or a
// cluster network policy that applies to it has a rule that denies.
func (v *View) Restricted(p *npc.Pod, d npc.Direction) bool {
	_, isolated := v.Isolating(p, d)
	return isolated || v.RestrictedByTiers(p, d)
}

// RestrictedByTiers reports whether cluster network policies may deny a pod something in a direction. A pod that
// NetworkPolicies isolate never meets the Baseline tier.
func (v *View) RestrictedByTiers(p *npc.Pod, d npc.Direction) bool {
	return v.asks(p, d, func(q *policy.Cluster) bool { return q.Denies(d) })
}

// RestrictedToNode reports whether cluster network policies may deny a pod something that it sends to its own node.
func (v *View) RestrictedToNode(p *npc.Pod) bool {
	return v.asks(p, npc.Egress, (*policy.Cluster).DeniesNode)
}

// asks reports whether a function holds for one of the cluster network policies that apply to a pod in a direction.
func (v *View) asks(p *npc.Pod, d npc.Direction, such func(*policy.Cluster) bool) bool {
	_, isolated := v.Isolating(p, d)
	return slices.ContainsFunc(v.Choosing(p), func(q *policy.Cluster) bool {
		return such(q) && (q.Tier == policy.Admin || !isolated)
	})
}
