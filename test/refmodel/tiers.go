package refmodel

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// rule is an ingress or egress rule of a cluster policy. Peers for ingress are peers for egress that have fewer fields.
type rule struct {
	tier      v1alpha2.Tier
	action    v1alpha2.ClusterNetworkPolicyRuleAction
	peers     []v1alpha2.ClusterNetworkPolicyEgressPeer
	protocols []v1alpha2.ClusterNetworkPolicyProtocol
}

// tier returns what the first rule that matches in a tier does with a packet in one direction: "" if none matches.
func (w State) tier(tier v1alpha2.Tier, e end) v1alpha2.ClusterNetworkPolicyRuleAction {
	for _, policy := range w.inOrder(tier) {
		if !w.isSubject(policy.Spec.Subject, e.pod) {
			continue
		}
		for _, r := range rules(policy.Spec, e.direction) {
			if action := w.apply(r, e); action != "" {
				return action
			}
		}
	}
	return ""
}

// inOrder returns the policies of a tier in the order of their evaluation.
func (w State) inOrder(tier v1alpha2.Tier) []v1alpha2.ClusterNetworkPolicy {
	var policies []v1alpha2.ClusterNetworkPolicy
	for _, p := range w.ClusterPolicies {
		if p.Spec.Tier == tier {
			policies = append(policies, p)
		}
	}
	slices.SortFunc(policies, func(a, b v1alpha2.ClusterNetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Spec.Priority, b.Spec.Priority), cmp.Compare(a.Name, b.Name))
	})
	return policies
}

// isSubject reports whether a subject includes a pod. One that is not exactly one of the kinds that we know, or that
// cannot be read, includes none.
func (w State) isSubject(s v1alpha2.ClusterNetworkPolicySubject, pod *Pod) bool {
	switch {
	case s.Namespaces != nil && s.Pods == nil:
		return w.inNamespaces(s.Namespaces, pod)
	case s.Pods != nil && s.Namespaces == nil:
		return w.isNamespacedPod(s.Pods, pod)
	}
	return false
}

func (w State) inNamespaces(s *metav1.LabelSelector, pod *Pod) bool {
	l, known := w.Namespaces[pod.Namespace]
	return known && selects(s, l)
}

func (w State) isNamespacedPod(s *v1alpha2.NamespacedPod, pod *Pod) bool {
	return w.inNamespaces(&s.NamespaceSelector, pod) && selects(&s.PodSelector, pod.Labels)
}

// rules returns the rules of a direction as written.
func rules(s v1alpha2.ClusterNetworkPolicySpec, direction networkingv1.PolicyType) []rule {
	var all []rule
	if direction == networkingv1.PolicyTypeEgress {
		for _, r := range s.Egress {
			all = append(all, rule{s.Tier, r.Action, r.To, r.Protocols})
		}
		return all
	}
	for _, r := range s.Ingress {
		var peers []v1alpha2.ClusterNetworkPolicyEgressPeer
		for _, p := range r.From {
			peers = append(peers, v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: p.Namespaces, Pods: p.Pods})
		}
		all = append(all, rule{s.Tier, r.Action, peers, r.Protocols})
	}
	return all
}

// apply returns the action of a rule if it matches, else "". A rule that is not understood fails closed.
func (w State) apply(r rule, e end) v1alpha2.ClusterNetworkPolicyRuleAction {
	switch {
	case !r.understood() && r.action == v1alpha2.ClusterNetworkPolicyRuleActionAccept:
		return ""
	case !r.understood():
		return v1alpha2.ClusterNetworkPolicyRuleActionDeny
	case w.matchesPeers(r.peers, e) && matchesProtocols(r.protocols, e):
		return r.action
	}
	return ""
}

// understood reports whether the API defines all of a rule, and we have what it asks for: only rules of the Admin tier
// that accept may have domain names.
func (r rule) understood() bool {
	switch r.action {
	case v1alpha2.ClusterNetworkPolicyRuleActionAccept, v1alpha2.ClusterNetworkPolicyRuleActionDeny,
		v1alpha2.ClusterNetworkPolicyRuleActionPass:
	default:
		return false
	}
	for _, p := range r.peers {
		named := len(p.DomainNames) > 0
		if !peerUnderstood(p) || named && (r.tier != v1alpha2.AdminTier ||
			r.action != v1alpha2.ClusterNetworkPolicyRuleActionAccept) {
			return false
		}
	}
	for _, p := range r.protocols {
		if !protocolUnderstood(p) {
			return false
		}
	}
	return len(r.peers) > 0
}

// peerUnderstood reports whether exactly one field of a peer is set, and can be read.
func peerUnderstood(p v1alpha2.ClusterNetworkPolicyEgressPeer) bool {
	fields := count(p.Namespaces != nil, p.Pods != nil, p.Nodes != nil, len(p.Networks) > 0, len(p.DomainNames) > 0)
	if fields != 1 {
		return false
	}
	for _, cidr := range p.Networks {
		if !isCIDR(string(cidr)) {
			return false
		}
	}
	return readable(p.Namespaces) && readable(p.Nodes) &&
		(p.Pods == nil || readable(&p.Pods.NamespaceSelector) && readable(&p.Pods.PodSelector))
}

// protocolUnderstood reports whether exactly one field of a protocol's entry is set, and its port, if it has one, is a
// number or a range.
func protocolUnderstood(p v1alpha2.ClusterNetworkPolicyProtocol) bool {
	if count(p.TCP != nil, p.UDP != nil, p.SCTP != nil, p.DestinationNamedPort != "") != 1 {
		return false
	}
	_, port := protocolAndPort(p)
	switch {
	case port == nil:
		return true
	case port.Range == nil:
		return isPort(port.Number)
	}
	return port.Number == 0 && isPort(port.Range.Start) && isPort(port.Range.End) && port.Range.Start < port.Range.End
}

func isPort(n int32) bool { return 1 <= n && n <= 65535 }

func count(all ...bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

// isNamed reports whether a resolver gave an address for one of the names of a peer.
func (w State) isNamed(names []v1alpha2.DomainName, a netip.Addr) bool {
	for given, addrs := range w.Names {
		for _, n := range names {
			name := strings.ToLower(strings.TrimSuffix(string(n), "."))
			below, wild := strings.CutPrefix(name, "*")
			if slices.Contains(addrs, a) && (given == name || wild && strings.HasSuffix(given, below)) {
				return true
			}
		}
	}
	return false
}

func (w State) matchesPeers(peers []v1alpha2.ClusterNetworkPolicyEgressPeer, e end) bool {
	for _, p := range peers {
		switch {
		case p.Namespaces != nil && e.other != nil && w.inNamespaces(p.Namespaces, e.other),
			p.Pods != nil && e.other != nil && w.isNamespacedPod(p.Pods, e.other),
			p.Nodes != nil && w.isOneOfNodes(p.Nodes, e.addr),
			inNetworks(p.Networks, e.addr), w.isNamed(p.DomainNames, e.addr):
			return true
		}
	}
	return false
}

func (w State) isOneOfNodes(s *metav1.LabelSelector, a netip.Addr) bool {
	for _, n := range w.Nodes {
		if selects(s, n.Labels) && slices.Contains(n.Addrs, a) {
			return true
		}
	}
	return false
}

// isNode reports whether an address is one of a node's.
func (w State) isNode(name string, a netip.Addr) bool {
	for _, n := range w.Nodes {
		if n.Name == name && slices.Contains(n.Addrs, a) {
			return true
		}
	}
	return false
}

func inNetworks(networks []v1alpha2.CIDR, a netip.Addr) bool {
	for _, cidr := range networks {
		if netip.MustParsePrefix(string(cidr)).Contains(a) {
			return true
		}
	}
	return false
}

func matchesProtocols(protocols []v1alpha2.ClusterNetworkPolicyProtocol, e end) bool {
	for _, p := range protocols {
		if p.DestinationNamedPort != "" {
			if e.dst != nil && named(e.dst, p.DestinationNamedPort, e.packet) {
				return true
			}
			continue
		}
		protocol, port := protocolAndPort(p)
		if protocol == e.packet.Protocol && matchesPort(port, e.packet.Port) {
			return true
		}
	}
	return len(protocols) == 0
}

// protocolAndPort returns the protocol of an entry that has one, and its port, nil for all.
func protocolAndPort(p v1alpha2.ClusterNetworkPolicyProtocol) (corev1.Protocol, *v1alpha2.Port) {
	switch {
	case p.TCP != nil:
		return corev1.ProtocolTCP, p.TCP.DestinationPort
	case p.UDP != nil:
		return corev1.ProtocolUDP, p.UDP.DestinationPort
	case p.SCTP != nil:
		return corev1.ProtocolSCTP, p.SCTP.DestinationPort
	}
	return "", nil
}

func matchesPort(port *v1alpha2.Port, n int32) bool {
	switch {
	case port == nil:
		return true
	case port.Range != nil:
		return port.Range.Start <= n && n <= port.Range.End
	}
	return port.Number == n
}

// closes reports whether a policy of a tier that selects a pod denies anything in a direction, or anything to the pod's
// own node. Rules that are understood and whose peers are pods deny nothing to a node.
func (w State) closes(tier v1alpha2.Tier, pod *Pod, direction networkingv1.PolicyType, toNode bool) bool {
	for _, policy := range w.inOrder(tier) {
		if !w.isSubject(policy.Spec.Subject, pod) {
			continue
		}
		for _, r := range rules(policy.Spec, direction) {
			switch {
			case !r.understood() && r.action != v1alpha2.ClusterNetworkPolicyRuleActionAccept:
				return true
			case r.action != v1alpha2.ClusterNetworkPolicyRuleActionDeny, toNode && !r.mayMatchNodes():
			default:
				return true
			}
		}
	}
	return false
}

// mayMatchNodes reports whether a peer of a rule matches addresses that are no pods'.
func (r rule) mayMatchNodes() bool {
	return slices.ContainsFunc(r.peers, func(p v1alpha2.ClusterNetworkPolicyEgressPeer) bool {
		return p.Nodes != nil || len(p.Networks) > 0
	})
}

// Selected names the policies of a tier that choose the pod of an address, in order, with what of them lists of
// subjects depend on.
func (w State) Selected(a netip.Addr, tier v1alpha2.Tier) string {
	pod, names := w.owner(a), []string{}
	for _, p := range w.inOrder(tier) {
		if pod != nil && w.isSubject(p.Spec.Subject, pod) {
			names = append(names, fmt.Sprintf("%s/%s %v", p.Name, p.UID, p.Spec.Subject))
		}
	}
	return strings.Join(names, ", ")
}
