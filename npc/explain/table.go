package explain

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// PodRow is a pod and what isolates it.
type PodRow struct {
	Pod       string            `json:"pod"`
	Node      string            `json:"node,omitempty"`
	Addresses []netip.Addr      `json:"addresses,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	// Ingress and Egress are the policies that isolate it in a direction; nil if it is not isolated.
	Ingress []string `json:"ingress,omitempty"`
	Egress  []string `json:"egress,omitempty"`
	// Note says why no policy concerns the pod, or some of its addresses; empty if all is as usual.
	Note string `json:"note,omitempty"`
}

// PodTable is all pods, in the order of their names; those of one namespace if it is not empty.
func (w *World) PodTable(namespace string) []PodRow {
	w.mu.Lock()
	defer w.mu.Unlock()
	rows := []PodRow{}
	for _, key := range slices.Sorted(maps.Keys(w.pods)) {
		p := w.pods[key]
		if namespace != "" && p.Namespace != namespace {
			continue
		}
		row := PodRow{Pod: key, Node: p.Node, Addresses: p.Addrs, Labels: p.Labels, Note: w.note(p)}
		if !p.HostNetwork && !p.Finished {
			row.Ingress, row.Egress = w.isolators(p, npc.Ingress), w.isolators(p, npc.Egress)
		}
		rows = append(rows, row)
	}
	return rows
}

func (w *World) note(p *npc.Pod) string {
	switch {
	case p.Finished:
		return "finished"
	case p.HostNetwork:
		return "on the network of its node"
	case len(p.Addrs) == 0:
		return "no address yet"
	}
	for _, a := range p.Addrs {
		if w.owner(a, p.Node) != p {
			return fmt.Sprintf("%s belongs to %s", a, w.name(a, p.Node))
		}
	}
	return ""
}

// isolators are the policies that isolate a pod in a direction; with LegacyNetpol, its namespace.
func (w *World) isolators(p *npc.Pod, d npc.Direction) (names []string) {
	isolating := w.isolating(p, d)
	if !w.isIsolated(p, d, isolating) {
		return nil
	}
	if w.LegacyNetpol {
		return []string{"namespace " + p.Namespace}
	}
	for _, q := range isolating {
		names = append(names, q.Key())
	}
	return names
}

// PolicyRow is a policy, and whom it isolates.
type PolicyRow struct {
	Policy string `json:"policy"`
	// Selects is its podSelector as kubectl takes it; empty for all pods of the namespace.
	Selects string `json:"selects"`
	// Types are its policy types, as they are understood.
	Types []networkingv1.PolicyType `json:"types"`
	// Pods are those that it selects, as namespace/name.
	Pods []string `json:"pods"`
	// Ingress and Egress are the rules in words.
	Ingress []string `json:"ingress,omitempty"`
	Egress  []string `json:"egress,omitempty"`
	// Invalid says why the policy allows nothing; empty if it could be compiled.
	Invalid string `json:"invalid,omitempty"`
}

// PolicyTable is all policies, in the order of their names; those of one namespace if it is not empty.
func (w *World) PolicyTable(namespace string) []PolicyRow {
	w.mu.Lock()
	defer w.mu.Unlock()
	rows := []PolicyRow{}
	for _, key := range slices.Sorted(maps.Keys(w.policies)) {
		p := w.policies[key]
		if namespace != "" && p.Object.Namespace != namespace {
			continue
		}
		row := PolicyRow{Policy: key, Selects: p.Target.String(), Pods: []string{}}
		if p.Isolates[npc.Ingress] {
			row.Types = append(row.Types, networkingv1.PolicyTypeIngress)
		}
		if p.Isolates[npc.Egress] {
			row.Types = append(row.Types, networkingv1.PolicyTypeEgress)
		}
		for pod, q := range w.pods {
			if !q.HostNetwork && !q.Finished && slices.Contains(w.policiesOf(q), p) {
				row.Pods = append(row.Pods, pod)
			}
		}
		slices.Sort(row.Pods)
		if p.Invalid != nil {
			row.Invalid = p.Invalid.Error()
		}
		row.Ingress, row.Egress = ruleTexts(p, npc.Ingress), ruleTexts(p, npc.Egress)
		rows = append(rows, row)
	}
	return rows
}

// ruleTexts are a policy's rules in words.
func ruleTexts(p *Policy, d npc.Direction) (texts []string) {
	way := "from "
	if d == npc.Egress {
		way = "to "
	}
	for _, r := range p.Rules[d] {
		var peers, ports []string
		for _, c := range r.Peers {
			peers = append(peers, peerWords(c, p.Object.Namespace))
		}
		for _, c := range r.Ports {
			ports = append(ports, portText(c))
		}
		if len(peers) == 0 {
			peers = []string{"anywhere"}
		}
		if len(ports) == 0 {
			ports = []string{"everything"}
		}
		texts = append(texts, strings.Join(ports, ", ")+" "+way+strings.Join(peers, ", or "))
	}
	return texts
}

// peerWords is a peer in words.
func peerWords(c policy.CompiledPeer, namespace string) string {
	if c.Block != nil {
		text := c.Block.CIDR.String()
		for i, e := range c.Block.Except {
			if i == 0 {
				text += " except"
			}
			text += " " + e.String()
		}
		return text
	}
	if c.Pods == nil && c.Namespaces == nil {
		return "nobody"
	}
	text := "pods"
	if c.Pods != nil && c.Pods.String() != "" {
		text += " with " + c.Pods.String()
	}
	switch {
	case c.Namespaces == nil:
		return text + " in " + namespace
	case c.Namespaces.String() == "":
		return text + " in all namespaces"
	}
	return text + " in namespaces with " + c.Namespaces.String()
}
