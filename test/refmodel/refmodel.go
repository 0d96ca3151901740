// Package refmodel decides which packets Kubernetes network policies allow, from the field comments of
// k8s.io/api/networking/v1 and of sigs.k8s.io/network-policy-api/apis/v1alpha2 alone. It shares no code with the
// product, and must not import it.
package refmodel

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// State is a cluster.
type State struct {
	// Namespaces holds name -> labels.
	Namespaces map[string]map[string]string
	Pods       []Pod
	Policies   []networkingv1.NetworkPolicy
	// ClusterPolicies and Nodes may be left empty: then there are no tiers but that of Policies, and no address is a
	// node's.
	ClusterPolicies []v1alpha2.ClusterNetworkPolicy
	Nodes           []Node
	// Names holds the addresses that answers of resolvers give at present: name in lower case -> addresses.
	Names map[string][]netip.Addr
}

// Node is a node with all addresses that its status has.
type Node struct {
	Name   string
	Labels map[string]string
	Addrs  []netip.Addr
}

// Pod is a pod that runs and has an address of its own.
type Pod struct {
	Namespace, Name, Node string
	Labels                map[string]string
	Addrs                 []netip.Addr
	Ports                 []corev1.ContainerPort
	// ConflictingPods are other pods of its node that claim its addresses too. Nothing is allowed in a direction if one
	// of them is isolated in it, or if a cluster policy denies it anything in it, because their packets cannot be
	// distinguished.
	ConflictingPods []Pod
}

// Packet opens a connection. A protocol other than TCP, UDP and SCTP has no port. Src, Dst and Port are what they are
// where policies are enforced: after the translation of Services, NodePorts and hostPorts.
type Packet struct {
	Src, Dst netip.Addr
	Protocol corev1.Protocol
	Port     int32
	// ThroughService says that a pod reaches itself through a Service. What it sends to its own address directly never
	// leaves it.
	ThroughService bool
}

// Everywhere stands for all nodes together.
const Everywhere = ""

// end is one direction of a packet: the pod that policies may select there, and the other end.
type end struct {
	pod       *Pod
	direction networkingv1.PolicyType
	addr      netip.Addr
	// other is nil where the other end is no pod.
	other  *Pod
	packet Packet
	// dst is the destination's pod, whichever end that is, or nil.
	dst *Pod
}

// Evaluate reports whether the policies of a packet's source let it out, and whether those of its destination let it
// in. An end that is no pod of the node allows everything.
func (w State) Evaluate(node string, p Packet) (out, in bool) {
	if p.Src == p.Dst && !p.ThroughService {
		return true, true
	}
	enforced := func(pod *Pod) bool { return pod != nil && (node == Everywhere || pod.Node == node) }
	src, dst := w.owner(p.Src), w.owner(p.Dst)
	egress := end{pod: src, direction: networkingv1.PolicyTypeEgress, addr: p.Dst, other: dst, packet: p, dst: dst}
	ingress := end{pod: dst, direction: networkingv1.PolicyTypeIngress, addr: p.Src, other: src, packet: p, dst: dst}
	return !enforced(src) || w.allows(egress), !enforced(dst) || w.allows(ingress)
}

// Allowed reports whether a packet passes a node, or arrives if node is Everywhere.
func (w State) Allowed(node string, p Packet) bool {
	out, in := w.Evaluate(node, p)
	return out && in
}

func (w State) owner(a netip.Addr) *Pod {
	for i := range w.Pods {
		for _, b := range w.Pods[i].Addrs {
			if a == b {
				return &w.Pods[i]
			}
		}
	}
	return nil
}

// allows evaluates one direction: the Admin tier, then v1 policies, then the Baseline tier.
func (w State) allows(e end) bool {
	ownNode := w.isNode(e.pod.Node, e.addr)
	if ownNode && e.direction == networkingv1.PolicyTypeIngress {
		return true
	}
	// No v1 policy applies to what a pod sends to its own node, or to itself.
	exempt := ownNode || e.packet.Src == e.packet.Dst
	if w.conflicting(e, exempt, ownNode) {
		return false
	}
	switch w.tier(v1alpha2.AdminTier, e) {
	case v1alpha2.ClusterNetworkPolicyRuleActionAccept:
		return true
	case v1alpha2.ClusterNetworkPolicyRuleActionDeny:
		return false
	}
	if w.isolated(e.pod, e.direction) {
		return exempt || w.allowedByPolicies(e)
	}
	return w.tier(v1alpha2.BaselineTier, e) != v1alpha2.ClusterNetworkPolicyRuleActionDeny
}

// conflicting reports whether a conflicting pod must not have what would be allowed. The v1 policies of a conflicting
// pod do not matter for packets that they do not apply to. For packets to a node, policies that deny nothing to a node
// do not matter either. If conflicting pods close what the pod sends elsewhere, a denial by the pod's own policies
// counts for all that it sends to the node.
func (w State) conflicting(e end, exempt, toNode bool) bool {
	closed := false
	for i := range e.pod.ConflictingPods {
		other := &e.pod.ConflictingPods[i]
		isolated := w.isolated(other, e.direction)
		if isolated && !exempt || w.closedByTiers(other, e.direction, toNode) {
			return true
		}
		closed = closed || isolated || w.closedByTiers(other, e.direction, false)
	}
	return toNode && closed && w.closedByTiers(e.pod, e.direction, true)
}

// closedByTiers reports whether a cluster policy that applies to a pod denies it something in a direction.
func (w State) closedByTiers(pod *Pod, direction networkingv1.PolicyType, toNode bool) bool {
	return w.closes(v1alpha2.AdminTier, pod, direction, toNode) ||
		!w.isolated(pod, direction) && w.closes(v1alpha2.BaselineTier, pod, direction, toNode)
}

// isolated reports whether a v1 policy isolates a pod in a direction.
func (w State) isolated(pod *Pod, direction networkingv1.PolicyType) bool {
	for _, policy := range w.Policies {
		if isolates(policy, pod, direction) {
			return true
		}
	}
	return false
}

// isolates reports whether a policy isolates a pod in a direction. A policy with an invalid selector isolates all pods
// of its namespace.
func isolates(policy networkingv1.NetworkPolicy, pod *Pod, direction networkingv1.PolicyType) bool {
	s := &policy.Spec.PodSelector
	return policy.Namespace == pod.Namespace && hasType(policy.Spec, direction) &&
		(selects(s, pod.Labels) || !readable(s))
}

// allowedByPolicies reports whether one of the v1 policies that isolate the pod allows the packet. One that cannot be
// read allows nothing.
func (w State) allowedByPolicies(e end) bool {
	for _, policy := range w.Policies {
		if !isolates(policy, e.pod, e.direction) || !valid(policy.Spec) {
			continue
		}
		if e.direction == networkingv1.PolicyTypeIngress {
			for _, r := range policy.Spec.Ingress {
				if w.peers(policy.Namespace, r.From, e.addr, e.other) && ports(r.Ports, e.packet, e.dst) {
					return true
				}
			}
			continue
		}
		for _, r := range policy.Spec.Egress {
			if w.peers(policy.Namespace, r.To, e.addr, e.other) && ports(r.Ports, e.packet, e.dst) {
				return true
			}
		}
	}
	return false
}

// valid reports whether the selectors and blocks of a v1 policy can be read.
func valid(s networkingv1.NetworkPolicySpec) bool {
	var peers []networkingv1.NetworkPolicyPeer
	for _, r := range s.Ingress {
		peers = append(peers, r.From...)
	}
	for _, r := range s.Egress {
		peers = append(peers, r.To...)
	}
	for _, p := range peers {
		if !readable(p.PodSelector) || !readable(p.NamespaceSelector) {
			return false
		}
		if b := p.IPBlock; b != nil {
			for _, cidr := range append([]string{b.CIDR}, b.Except...) {
				if !isCIDR(cidr) {
					return false
				}
			}
		}
	}
	return readable(&s.PodSelector)
}

// isCIDR reports whether a text is a range of addresses that is not IPv4-mapped.
func isCIDR(text string) bool {
	p, err := netip.ParsePrefix(text)
	return err == nil && !p.Addr().Is4In6()
}

func hasType(s networkingv1.NetworkPolicySpec, direction networkingv1.PolicyType) bool {
	if len(s.PolicyTypes) == 0 {
		return direction == networkingv1.PolicyTypeIngress || len(s.Egress) > 0
	}
	for _, t := range s.PolicyTypes {
		if t == direction {
			return true
		}
	}
	return false
}

func selects(s *metav1.LabelSelector, l map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(l))
}

func readable(s *metav1.LabelSelector) bool {
	_, err := metav1.LabelSelectorAsSelector(s)
	return err == nil
}

func (w State) peers(namespace string, peers []networkingv1.NetworkPolicyPeer, addr netip.Addr, other *Pod) bool {
	for _, peer := range peers {
		if peer.IPBlock != nil {
			if inBlock(peer.IPBlock, addr) {
				return true
			}
			continue
		}
		if other == nil {
			continue
		}
		l, known := w.Namespaces[other.Namespace]
		inNamespace := other.Namespace == namespace
		if peer.NamespaceSelector != nil {
			inNamespace = known && selects(peer.NamespaceSelector, l)
		}
		if inNamespace && (peer.PodSelector == nil || selects(peer.PodSelector, other.Labels)) {
			return true
		}
	}
	return len(peers) == 0
}

func inBlock(b *networkingv1.IPBlock, a netip.Addr) bool {
	if !netip.MustParsePrefix(b.CIDR).Contains(a) {
		return false
	}
	for _, e := range b.Except {
		if netip.MustParsePrefix(e).Contains(a) {
			return false
		}
	}
	return true
}

func ports(ports []networkingv1.NetworkPolicyPort, p Packet, dst *Pod) bool {
	for _, port := range ports {
		protocol := corev1.ProtocolTCP
		if port.Protocol != nil {
			protocol = *port.Protocol
		}
		if protocol != p.Protocol {
			continue
		}
		switch {
		case port.Port == nil:
			return true
		case port.Port.Type == intstr.String:
			if dst != nil && named(dst, port.Port.StrVal, p) {
				return true
			}
		case port.EndPort != nil:
			if port.Port.IntVal <= p.Port && p.Port <= *port.EndPort {
				return true
			}
		case port.Port.IntVal == p.Port:
			return true
		}
	}
	return len(ports) == 0
}

func named(dst *Pod, name string, p Packet) bool {
	for _, c := range dst.Ports {
		if c.Name == name && c.Protocol == p.Protocol && c.ContainerPort == p.Port {
			return true
		}
	}
	return false
}

// Isolating returns the NetworkPolicies that isolate the pod of an address, for egress and for ingress.
func (w State) Isolating(a netip.Addr) (by [2][]string) {
	pod := w.owner(a)
	for i, direction := range []networkingv1.PolicyType{networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress} {
		for _, policy := range w.Policies {
			if pod != nil && isolates(policy, pod, direction) {
				by[i] = append(by[i], policy.Name)
			}
		}
	}
	return by
}
