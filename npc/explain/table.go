package explain

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// PodRow is a pod and what isolates it.
type PodRow struct {
	Pod       string            `json:"pod"`
	Node      string            `json:"node,omitempty"`
	Addresses []netip.Addr      `json:"addresses,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	// Ingress and Egress are the policies that isolate the pod in a direction; nil if it is not isolated.
	Ingress []string `json:"ingress,omitempty"`
	Egress  []string `json:"egress,omitempty"`
	// Note is why policies do not apply to the pod, or to one of its addresses; usually empty.
	Note string `json:"note,omitempty"`
}

// Pods returns a row for each pod, ordered by namespace/name; only for the pods of one namespace if it is not empty.
func Pods(c *cluster.View, namespace string) []PodRow {
	rows := []PodRow{}
	for _, key := range slices.Sorted(maps.Keys(c.Pods)) {
		p := c.Pods[key]
		if namespace != "" && p.Namespace != namespace {
			continue
		}
		row := PodRow{Pod: key, Node: p.Node, Addresses: p.Addrs, Labels: p.Labels, Note: note(c, p)}
		if !p.HostNetwork && !p.Finished {
			row.Ingress, row.Egress = isolators(c, p, traffic.Ingress), isolators(c, p, traffic.Egress)
		}
		rows = append(rows, row)
	}
	return rows
}

func note(c *cluster.View, p *npc.Pod) string {
	switch {
	case p.Finished:
		return "finished"
	case p.HostNetwork:
		return "on the network of its node"
	case len(p.Addrs) == 0:
		return "no address yet"
	}
	for _, a := range p.Addrs {
		owner := c.Owner(a, p.Node)
		if owner != p && owner != nil {
			return fmt.Sprintf("%s belongs to pod %s", a, podName(owner))
		}
		for _, d := range traffic.Directions {
			if conflict := conflictOf(c, end{flow.End{Addr: a}, p}, d); conflict.text != "" {
				return conflict.text
			}
		}
	}
	return ""
}

// isolators returns the policies that isolate a pod in a direction, or its namespace with LegacyNetpol.
func isolators(c *cluster.View, p *npc.Pod, d traffic.Direction) (names []string) {
	isolating, isolated := c.Isolating(p, d)
	if !isolated {
		return nil
	}
	if c.LegacyNetpol {
		return []string{"namespace " + p.Namespace}
	}
	for _, q := range isolating {
		names = append(names, q.Key())
	}
	return names
}

// PolicyRow is a policy and the pods that it isolates.
type PolicyRow struct {
	Policy string `json:"policy"`
	// Selects is its podSelector as kubectl takes it; empty for all pods of the namespace.
	Selects string `json:"selects"`
	// Types are its policy types as weave-npc understands them.
	Types []networkingv1.PolicyType `json:"types"`
	// Pods are the pods that it selects, as namespace/name.
	Pods []string `json:"pods"`
	// Ingress and Egress are the rules in words.
	Ingress []string `json:"ingress,omitempty"`
	Egress  []string `json:"egress,omitempty"`
	// Invalid is the error for which the policy allows nothing; empty if it could be compiled.
	Invalid string `json:"invalid,omitempty"`
}

// Policies returns a row for each policy, ordered by namespace/name; only for those of one namespace if it is not empty.
func Policies(c *cluster.View, namespace string) []PolicyRow {
	rows := []PolicyRow{}
	for _, p := range c.Policies {
		if namespace != "" && p.Namespace != namespace {
			continue
		}
		row := PolicyRow{Policy: p.Key(), Selects: p.Target.String(), Pods: []string{}}
		if p.Isolates[traffic.Ingress] {
			row.Types = append(row.Types, networkingv1.PolicyTypeIngress)
		}
		if p.Isolates[traffic.Egress] {
			row.Types = append(row.Types, networkingv1.PolicyTypeEgress)
		}
		for pod, q := range c.Pods {
			if !q.HostNetwork && !q.Finished && slices.Contains(c.Selecting(q), p) {
				row.Pods = append(row.Pods, pod)
			}
		}
		slices.Sort(row.Pods)
		if p.Invalid != nil {
			row.Invalid = p.Invalid.Error()
		}
		row.Ingress, row.Egress = ruleTexts(p.Rules[traffic.Ingress], "from"), ruleTexts(p.Rules[traffic.Egress], "to")
		rows = append(rows, row)
	}
	return rows
}

// ruleTexts returns rules in words.
func ruleTexts(rules []policy.Rule, preposition string) (texts []string) {
	for _, r := range rules {
		var peers, ports []string
		for _, p := range r.Peers {
			peers = append(peers, peerText(p))
		}
		for _, p := range r.Ports {
			ports = append(ports, p.String())
		}
		if len(peers) == 0 {
			peers = []string{"anywhere"}
		}
		if len(ports) == 0 {
			ports = []string{"everything"}
		}
		texts = append(texts, fmt.Sprintf("%s %s %s", strings.Join(ports, ", "), preposition, strings.Join(peers, ", or ")))
	}
	return texts
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
	if p.IsUnknown() {
		return "nobody"
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
