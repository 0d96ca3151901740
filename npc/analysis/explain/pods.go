package explain

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// PodRow is a pod and the policies that isolate or select it.
type PodRow struct {
	Pod       string            `json:"pod"`
	Node      string            `json:"node,omitempty"`
	Addresses []netip.Addr      `json:"addresses,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	// Ingress and Egress are the policies that isolate the pod in a direction; nil if it is not isolated.
	Ingress []string `json:"ingress,omitempty"`
	Egress  []string `json:"egress,omitempty"`
	// ClusterPolicies are the cluster network policies whose subject the pod is, in order.
	ClusterPolicies []string `json:"cluster_policies,omitempty"`
	// Unknown is why policies that are not listed may isolate or choose the pod; empty if there are none.
	Unknown string `json:"unknown,omitempty"`
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
		if p.HasNetwork() {
			row.Ingress, row.Egress = isolators(c, p, npc.Ingress), isolators(c, p, npc.Egress)
			for _, q := range c.Choosing(p) {
				row.ClusterPolicies = append(row.ClusterPolicies, q.Name)
			}
			row.Unknown = unknownOf(c, p)
		}
		rows = append(rows, row)
	}
	return rows
}

// unknownOf returns what could not be read that may isolate or choose a pod; empty if nothing may.
func unknownOf(c *cluster.View, p *npc.Pod) string {
	switch {
	case c.Unreadable.Policies.Lacks(p.Namespace):
		return "its network policies cannot be read"
	case c.LegacyNetpol && c.Unreadable.Namespaces.Lacks(p.Namespace),
		slices.ContainsFunc(c.ClusterPolicies, func(q *policy.Cluster) bool {
			return c.Selects(q, p) == policy.Maybe
		}):
		return "the labels of its namespace cannot be read"
	}
	return ""
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
			return fmt.Sprintf("%s belongs to pod %s", a, owner.Key())
		}
		for _, d := range npc.Directions {
			if conflict := conflictOf(c, end{flow.End{Addr: a}, p}, d, ""); conflict.text != "" {
				return conflict.text
			}
		}
	}
	return ""
}

// isolators returns the policies that isolate a pod in a direction, or its namespace with LegacyNetpol.
func isolators(c *cluster.View, p *npc.Pod, d npc.Direction) (names []string) {
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
