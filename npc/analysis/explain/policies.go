package explain

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// PolicyRow is a policy and the pods that it isolates or selects.
type PolicyRow struct {
	// Tier and Priority are those of a cluster network policy. Tier is empty for a NetworkPolicy, and NoTier if the
	// policy decides nothing.
	Tier     string `json:"tier,omitempty"`
	Priority *int32 `json:"priority,omitempty"`
	Policy   string `json:"policy"`
	// Selects is its podSelector as kubectl takes it; empty for all pods of the namespace. Of a cluster network policy
	// it is the subject in words.
	Selects string `json:"selects"`
	// Types are its policy types as weave-npc understands them, or the directions that it has rules for.
	Types []networkingv1.PolicyType `json:"types"`
	// Pods are the pods that it selects, as namespace/name.
	Pods []string `json:"pods"`
	// Unreadable is set if there may be further ones, which could not be read.
	Unreadable bool `json:"unreadable,omitempty"`
	// Ingress and Egress are the rules in words.
	Ingress []string `json:"ingress,omitempty"`
	Egress  []string `json:"egress,omitempty"`
	// Contents identify the rules of each direction, as hits of rules name them; empty for a rule that passes to the
	// next tier.
	Contents [len(npc.Directions)][]string `json:"-"`
	// Invalid is the error that makes the policy allow nothing, or decide nothing, or that makes a rule of it fail
	// closed; empty if there is none.
	Invalid string `json:"invalid,omitempty"`
}

// NoTier is the Tier of cluster network policies that decide nothing.
const NoTier = "none"

// Policies returns a row for each policy, in evaluation order: the Admin tier by priority and name, NetworkPolicies by
// namespace/name, the Baseline tier; then those that decide nothing. With a namespace it returns only its
// NetworkPolicies, and the cluster network policies that select pods of it.
func Policies(c *cluster.View, namespace string) []PolicyRow {
	rows := append([]PolicyRow{}, clusterRows(c, policy.Admin.String(), namespace)...)
	rows = append(rows, networkRows(c, namespace)...)
	rows = append(rows, clusterRows(c, policy.Baseline.String(), namespace)...)
	return append(rows, clusterRows(c, NoTier, namespace)...)
}

// clusterRows returns rows of the cluster network policies of a tier, or of those that decide nothing.
func clusterRows(c *cluster.View, tier, namespace string) (rows []PolicyRow) {
	pods := c.PodNames(namespace)
	for _, p := range c.ClusterPolicies {
		row := PolicyRow{Tier: p.Tier.String(), Priority: &p.Priority, Policy: p.Name,
			Types: []networkingv1.PolicyType{}, Unreadable: c.Unreadable.Any()}
		if p.Invalid != nil {
			row.Invalid = p.Invalid.Error()
		}
		if p.Inert {
			row.Tier = NoTier
		} else {
			row.Selects = peerText(policy.Peer{Namespaces: &p.Namespaces, Pods: &p.Pods})
		}
		if row.Tier != tier {
			continue
		}
		row.Pods = selectedOf(pods, func(pod string) bool { return slices.Contains(c.Choosing(c.Pods[pod]), p) })
		if namespace != "" && len(row.Pods) == 0 {
			continue
		}
		row.Ingress, row.Egress = clusterRuleTexts(p.Written[npc.Ingress], "from"),
			clusterRuleTexts(p.Written[npc.Egress], "to")
		for _, d := range npc.Directions {
			for _, r := range p.Rules[d] {
				content := ""
				if r.Action != policy.Pass {
					content = r.Digest(r.Action)
				}
				row.Contents[d] = append(row.Contents[d], content)
			}
		}
		row.setTypes(len(row.Ingress) > 0, len(row.Egress) > 0)
		rows = append(rows, row)
	}
	return rows
}

// clusterRuleTexts returns rules of a cluster network policy in words.
func clusterRuleTexts(rules []policy.WrittenRule, preposition string) (texts []string) {
	for _, r := range rules {
		name := policy.QuoteRuleName(r.Name)
		switch {
		case r.Invalid == nil:
			texts = append(texts, r.Action.String()+name+": "+ruleText(r.Rule, preposition))
		case r.Action == policy.Accept:
			texts = append(texts, "Accept"+name+": nothing, for it is invalid: "+r.Invalid.Error())
		default:
			texts = append(texts, "Deny"+name+": everything, for it fails closed: "+r.Invalid.Error())
		}
	}
	return texts
}

// networkRows returns a row for each NetworkPolicy, ordered by namespace/name; only for those of one namespace if it is
// not empty.
func networkRows(c *cluster.View, namespace string) (rows []PolicyRow) {
	pods := c.PodNames(namespace)
	for _, p := range c.Policies {
		if namespace != "" && p.Namespace != namespace {
			continue
		}
		row := PolicyRow{Policy: p.Key(), Selects: p.Target.String(), Unreadable: c.Unreadable.Pods.Lacks(p.Namespace),
			Pods: selectedOf(pods, func(pod string) bool { return slices.Contains(c.Selecting(c.Pods[pod]), p) })}
		row.setTypes(p.Isolates[npc.Ingress], p.Isolates[npc.Egress])
		if p.Invalid != nil {
			row.Invalid = p.Invalid.Error()
		}
		row.Ingress, row.Egress = ruleTexts(p.Rules[npc.Ingress], "from"), ruleTexts(p.Rules[npc.Egress], "to")
		for _, d := range npc.Directions {
			for _, r := range p.Rules[d] {
				row.Contents[d] = append(row.Contents[d], r.Digest())
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func (r *PolicyRow) setTypes(ingress, egress bool) {
	if ingress {
		r.Types = append(r.Types, networkingv1.PolicyTypeIngress)
	}
	if egress {
		r.Types = append(r.Types, networkingv1.PolicyTypeEgress)
	}
}

// selectedOf returns those of pods that a policy selects; an empty slice, not nil, if it selects none.
func selectedOf(pods []string, selected func(string) bool) []string {
	out := []string{}
	for _, pod := range pods {
		if selected(pod) {
			out = append(out, pod)
		}
	}
	return out
}

// ruleTexts returns rules in words.
func ruleTexts(rules []policy.Rule, preposition string) (texts []string) {
	for _, r := range rules {
		texts = append(texts, ruleText(r, preposition))
	}
	return texts
}

// ruleText returns what a rule matches in words.
func ruleText(r policy.Rule, preposition string) string {
	var peers []string
	for _, p := range r.Peers {
		peers = append(peers, peerText(p))
	}
	ports := spelling.Texts(r.Ports)
	if len(peers) == 0 {
		peers = []string{"anywhere"}
	}
	if len(ports) == 0 {
		ports = []string{"everything"}
	}
	return fmt.Sprintf("%s %s %s", strings.Join(ports, ", "), preposition, strings.Join(peers, ", or "))
}

// peerText returns a peer in words.
func peerText(p policy.Peer) string {
	if p.Block != nil {
		text := p.Block.CIDR.String()
		for i, e := range p.Block.Except {
			if i == 0 {
				text += " except"
			}
			text += " " + e.String()
		}
		return text
	}
	switch {
	case p.Nodes != nil && p.Nodes.String() == "":
		return "all nodes"
	case p.Nodes != nil:
		return "nodes with " + p.Nodes.String()
	case p.Name != "":
		return p.Name
	case p.IsUnknown():
		return "no pod"
	}
	text := "pods"
	if p.Pods != nil && p.Pods.String() != "" {
		text += " with " + p.Pods.String()
	}
	switch {
	case p.Namespaces == nil:
		return text + " in " + p.Namespace
	case p.Namespaces.String() == "":
		return text + " in all namespaces"
	}
	return text + " in namespaces with " + p.Namespaces.String()
}
