// Package tiers draws random cluster network policies for tests.
package tiers

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// Universe has the names that policies use. It should be small, so that policies overlap.
type Universe struct {
	// Names are those of policies.
	Names []string
	// Namespaces, Pods and Nodes are labels for selectors. Without Nodes, no policy has nodes as peers.
	Namespaces, Pods, Nodes []map[string]string
	CIDRs                   []v1alpha2.CIDR
	Ports                   []int32
	PortNames               []string
	DomainNames             []v1alpha2.DomainName
}

// Draw returns a policy that one of the two definitions of the kind admits, the standard or the experimental one.
// Priorities are few, so that policies tie. A few policies have domain names, which fail closed.
func Draw(t *rapid.T, u Universe) *v1alpha2.ClusterNetworkPolicy {
	d := drawing{t, u, rapid.Bool().Draw(t, "experimental")}
	p := &v1alpha2.ClusterNetworkPolicy{}
	p.Name = pick(t, u.Names, "name")
	p.Spec.Tier = pick(t, []v1alpha2.Tier{v1alpha2.AdminTier, v1alpha2.BaselineTier}, "tier")
	p.Spec.Priority = pick(t, []int32{0, 1, 2, 1000}, "priority")
	if d.chance(50, "namespaces as subject") {
		p.Spec.Subject.Namespaces = d.selector(u.Namespaces)
	} else {
		p.Spec.Subject.Pods = d.pods()
	}
	for range rapid.IntRange(0, 3).Draw(t, "ingress rules") {
		p.Spec.Ingress = append(p.Spec.Ingress, d.ingressRule())
	}
	for range rapid.IntRange(0, 3).Draw(t, "egress rules") {
		p.Spec.Egress = append(p.Spec.Egress, d.egressRule())
	}
	return p
}

// drawing is one policy that is being drawn.
type drawing struct {
	t            *rapid.T
	u            Universe
	experimental bool
}

func pick[T any](t *rapid.T, from []T, label string) T {
	return rapid.SampledFrom(from).Draw(t, label)
}

func (d drawing) chance(percent int, label string) bool {
	return rapid.IntRange(0, 99).Draw(d.t, label) < percent
}

func (d drawing) action() v1alpha2.ClusterNetworkPolicyRuleAction {
	return pick(d.t, []v1alpha2.ClusterNetworkPolicyRuleAction{v1alpha2.ClusterNetworkPolicyRuleActionAccept,
		v1alpha2.ClusterNetworkPolicyRuleActionDeny, v1alpha2.ClusterNetworkPolicyRuleActionPass}, "action")
}

func (d drawing) ingressRule() v1alpha2.ClusterNetworkPolicyIngressRule {
	r := v1alpha2.ClusterNetworkPolicyIngressRule{Action: d.action()}
	for range rapid.IntRange(1, 2).Draw(d.t, "peers") {
		var peer v1alpha2.ClusterNetworkPolicyIngressPeer
		if d.chance(50, "namespaces") {
			peer.Namespaces = d.selector(d.u.Namespaces)
		} else {
			peer.Pods = d.pods()
		}
		r.From = append(r.From, peer)
	}
	r.Protocols = d.protocols(true)
	return r
}

func (d drawing) egressRule() v1alpha2.ClusterNetworkPolicyEgressRule {
	r := v1alpha2.ClusterNetworkPolicyEgressRule{Action: d.action()}
	named := true
	for range rapid.IntRange(1, 2).Draw(d.t, "peers") {
		peer := d.egressPeer()
		r.To = append(r.To, peer)
		if d.experimental && peer.Namespaces == nil && peer.Pods == nil {
			named = false // the experimental definition refuses it
		}
	}
	r.Protocols = d.protocols(named)
	return r
}

func (d drawing) egressPeer() (peer v1alpha2.ClusterNetworkPolicyEgressPeer) {
	if len(d.u.DomainNames) > 0 && d.experimental && d.chance(10, "domain names") {
		peer.DomainNames = rapid.SliceOfNDistinct(rapid.SampledFrom(d.u.DomainNames), 1, 2, rapid.ID).Draw(d.t, "names")
		return peer
	}
	if d.experimental && len(d.u.Nodes) > 0 && d.chance(20, "nodes") {
		peer.Nodes = d.selector(d.u.Nodes)
		return peer
	}
	switch rapid.IntRange(0, 2).Draw(d.t, "kind of peer") {
	case 0:
		peer.Namespaces = d.selector(d.u.Namespaces)
	case 1:
		peer.Pods = d.pods()
	default:
		networks := rapid.SliceOfNDistinct(rapid.SampledFrom(d.u.CIDRs), 1, min(2, len(d.u.CIDRs)), rapid.ID)
		peer.Networks = networks.Draw(d.t, "networks")
	}
	return peer
}

func (d drawing) pods() *v1alpha2.NamespacedPod {
	return &v1alpha2.NamespacedPod{NamespaceSelector: *d.selector(d.u.Namespaces), PodSelector: *d.selector(d.u.Pods)}
}

// selector returns a selector by some of the given labels, by an expression about their keys and values, or one that
// selects everything.
func (d drawing) selector(some []map[string]string) *metav1.LabelSelector {
	if d.chance(30, "everything") {
		return &metav1.LabelSelector{}
	}
	s := &metav1.LabelSelector{MatchLabels: maps.Clone(pick(d.t, some, "labels"))}
	values := map[string][]string{}
	for _, labels := range some {
		for k, v := range labels {
			if !slices.Contains(values[k], v) {
				values[k] = append(values[k], v)
			}
		}
	}
	if len(values) == 0 || !d.chance(30, "expression") {
		return s
	}
	e := metav1.LabelSelectorRequirement{
		Key: pick(d.t, slices.Sorted(maps.Keys(values)), "key"),
		Operator: pick(d.t, []metav1.LabelSelectorOperator{
			metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn,
			metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
		}, "operator"),
	}
	if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
		slices.Sort(values[e.Key])
		e.Values = []string{pick(d.t, values[e.Key], "value")}
	}
	s.MatchExpressions = append(s.MatchExpressions, e)
	return s
}

// protocols returns none in a third of the cases, which means all.
func (d drawing) protocols(named bool) []v1alpha2.ClusterNetworkPolicyProtocol {
	var all []v1alpha2.ClusterNetworkPolicyProtocol
	for range rapid.IntRange(0, 2).Draw(d.t, "protocols") {
		var p v1alpha2.ClusterNetworkPolicyProtocol
		switch kind := rapid.IntRange(0, 4).Draw(d.t, "protocol"); {
		case kind == 0 && named && len(d.u.PortNames) > 0:
			p.DestinationNamedPort = pick(d.t, d.u.PortNames, "port name")
		case kind == 1:
			p.UDP = &v1alpha2.ClusterNetworkPolicyProtocolUDP{DestinationPort: d.port()}
		case kind == 2:
			p.SCTP = &v1alpha2.ClusterNetworkPolicyProtocolSCTP{DestinationPort: d.port()}
		default:
			p.TCP = &v1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: d.port()}
		}
		all = append(all, p)
	}
	return all
}

// port returns a number, or a range that begins or ends at or next to one of the universe's.
func (d drawing) port() *v1alpha2.Port {
	n := pick(d.t, d.u.Ports, "port")
	switch rapid.IntRange(0, 4).Draw(d.t, "kind of port") {
	case 0:
		return &v1alpha2.Port{Range: &v1alpha2.PortRange{Start: min(n, 65534), End: 65535}}
	case 1:
		return &v1alpha2.Port{Range: &v1alpha2.PortRange{Start: 1, End: max(n, 2)}}
	case 2:
		n = min(n, 65534)
		return &v1alpha2.Port{Range: &v1alpha2.PortRange{Start: n, End: n + 1}}
	}
	return &v1alpha2.Port{Number: n}
}
