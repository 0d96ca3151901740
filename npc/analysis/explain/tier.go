package explain

import (
	"fmt"

	"github.com/weave-npc/weave-npc/npc/policy"
)

// Decision is the rule of a cluster network policy that decides.
type Decision struct {
	Tier   string `json:"tier"`
	Policy string `json:"policy"`
	// Rule counts the rules of a direction from 1. Name is the name that the rule has; it may be empty.
	Rule   int    `json:"rule"`
	Name   string `json:"name,omitempty"`
	Action string `json:"action"`
}

// String returns the decision as sentences name it.
func (d Decision) String() string {
	return policy.DescribeRule(d.Tier, d.Policy, d.Rule, d.Name)
}

// ClusterPolicyReason is what a cluster network policy says.
type ClusterPolicyReason struct {
	Tier     string `json:"tier"`
	Policy   string `json:"policy"`
	Priority int32  `json:"priority"`
	// Isolated is set if the policy was not asked, because a NetworkPolicy isolates the pod.
	Isolated bool `json:"isolated,omitempty"`
	// Rules are those that were asked: all, or those up to the first that matches.
	Rules []ClusterRuleReason `json:"rules,omitempty"`
}

// ClusterRuleReason is what a rule of a cluster network policy says.
type ClusterRuleReason struct {
	Number int    `json:"rule"`
	Name   string `json:"name,omitempty"`
	Action string `json:"action"`
	// Matches reports whether the rule matches the flow.
	Matches bool `json:"matches"`
	// Invalid is the error that makes the rule fail closed: a rule that accepts matches nothing, any other denies
	// everything.
	Invalid string `json:"invalid,omitempty"`
	matching
}

// tier asks the policies of a tier without one of the rules, and reports whether one decides.
func (q question) tier(a *answer, t policy.Tier, without *Decision) (decided bool) {
	for _, p := range q.Tier(t, q.own.pod, q.direction) {
		said := policySaid(p)
		for i, rule := range p.Written[q.direction] {
			by := Decision{said.Tier, said.Policy, i + 1, rule.Name, rule.Action.String()}
			r := q.clusterRule(rule, by)
			said.Rules = append(said.Rules, r)
			if !r.Matches || without != nil && by == *without {
				continue
			}
			a.clusterPolicies = append(a.clusterPolicies, said)
			switch rule.Action {
			case policy.Accept:
				a.Outcome = Outcome{Allowed: true, Reason: tierAccepts, By: &by}
			case policy.Deny:
				a.Outcome = Outcome{Reason: tierDenies, By: &by}
			}
			return rule.Action != policy.Pass
		}
		a.clusterPolicies = append(a.clusterPolicies, said)
	}
	return false
}

// clusterRule asks one rule.
func (q question) clusterRule(rule policy.WrittenRule, by Decision) ClusterRuleReason {
	r := ClusterRuleReason{Number: by.Rule, Name: by.Name, Action: by.Action, matching: q.match(rule.Rule)}
	r.Matches = r.fits()
	if rule.Invalid != nil {
		r.Invalid, r.matching = rule.Invalid.Error(), matching{}
	}
	return r
}

// skipBaseline records the Baseline policies that are not asked.
func (q question) skipBaseline(a *answer) {
	for _, p := range q.Tier(policy.Baseline, q.own.pod, q.direction) {
		said := policySaid(p)
		said.Isolated = true
		a.clusterPolicies = append(a.clusterPolicies, said)
	}
}

func policySaid(p *policy.Cluster) ClusterPolicyReason {
	return ClusterPolicyReason{Tier: p.Tier.String(), Policy: p.Name, Priority: p.Priority}
}

// lines returns what the policy says in lines.
func (p ClusterPolicyReason) lines() []string {
	head := fmt.Sprintf("  %s policy %s (priority %d): ", p.Tier, p.Policy, p.Priority)
	if p.Isolated {
		return []string{head + "is not asked, for a NetworkPolicy isolates the pod"}
	}
	lines := []string{head + "selects it"}
	for _, r := range p.Rules {
		lines = append(lines, fmt.Sprintf("    rule %d%s, %s: %s", r.Number, policy.QuoteRuleName(r.Name), r.Action, r))
	}
	return lines
}

// String returns what the rule says as one sentence.
func (r ClusterRuleReason) String() string {
	switch {
	case r.Invalid != "" && r.Matches:
		return "matches everything, for it fails closed: " + r.Invalid
	case r.Invalid != "":
		return "matches nothing, for it is invalid: " + r.Invalid
	case r.Matches && r.Action == policy.Pass.String():
		return "matches, and passes it to the next tier"
	case r.Matches:
		return "matches"
	}
	return "no: " + r.misses()
}
