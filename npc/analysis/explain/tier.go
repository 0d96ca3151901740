package explain

import (
	"fmt"

	"github.com/weave-npc/weave-npc/npc/cluster"
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

// askTier asks a rule of a cluster network policy, adds what it says, and reports whether it matches and is not the one
// to do without.
func (q question) askTier(a *answer, r cluster.Rule, without *Decision) bool {
	if last := len(a.clusterPolicies) - 1; last < 0 || a.clusterPolicies[last].Policy != r.Of.Name {
		a.clusterPolicies = append(a.clusterPolicies, policySaid(r.Of))
	}
	said := &a.clusterPolicies[len(a.clusterPolicies)-1]
	by := q.decision(r)
	reason := q.clusterRule(r.Of.Written[q.direction][r.Number-1], by)
	said.Rules = append(said.Rules, reason)
	return reason.Matches && (without == nil || *by != *without)
}

// decision returns a rule of a cluster network policy as the one that decides.
func (q question) decision(r cluster.Rule) *Decision {
	name := r.Of.Written[q.direction][r.Number-1].Name
	return &Decision{r.Of.Tier.String(), r.Of.Name, r.Number, name, r.Action.String()}
}

// clusterRule asks one rule.
func (q question) clusterRule(rule policy.WrittenRule, by *Decision) ClusterRuleReason {
	r := ClusterRuleReason{Number: by.Rule, Name: by.Name, Action: by.Action, matching: q.match(rule.Rule)}
	r.Matches = r.fits()
	if rule.Invalid != nil {
		r.Invalid, r.matching = rule.Invalid.Error(), matching{}
	}
	return r
}

// skipBaseline records the Baseline policies that are not asked.
func (q question) skipBaseline(a *answer) {
	for _, p := range q.Choosing(q.own.pod) {
		if p.Tier == policy.Baseline && len(p.Rules[q.direction]) > 0 {
			said := policySaid(p)
			said.Isolated = true
			a.clusterPolicies = append(a.clusterPolicies, said)
		}
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
		return "matches" + r.named()
	}
	return "no: " + r.misses()
}
