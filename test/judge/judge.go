// Package judge decides which packets Kubernetes network policies allow, from the field comments of k8s.io/api/networking/v1 alone. It
// shares no code with what it judges, and must not import it.
package judge

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// World is a cluster.
type World struct {
	// Namespaces holds name -> labels.
	Namespaces map[string]map[string]string
	Pods       []Pod
	Policies   []networkingv1.NetworkPolicy
}

// Pod is a pod that runs and has an address of its own.
type Pod struct {
	Namespace, Name, Node string
	Labels                map[string]string
	Addrs                 []netip.Addr
	Ports                 []corev1.ContainerPort
	// Rivals are other pods of its node that claim its addresses too. Nothing is allowed in a direction that one of them is
	// isolated in, because their packets cannot be told apart.
	Rivals []Pod
}

// Packet opens a connection. A protocol other than TCP, UDP and SCTP has no port.
type Packet struct {
	Src, Dst netip.Addr
	Protocol corev1.Protocol
	Port     int32
}

// Everywhere stands for all nodes together.
const Everywhere = ""

// Judge reports whether the policies of a packet's source let it out, and whether those of its destination let it in. An end that is no
// pod of the node allows everything.
func (w World) Judge(node string, p Packet) (out, in bool) {
	judges := func(pod *Pod) bool { return pod != nil && (node == Everywhere || pod.Node == node) }
	src, dst := w.owner(p.Src), w.owner(p.Dst)
	out = !judges(src) || !w.contested(src, networkingv1.PolicyTypeEgress) && w.side(src, p.Dst, dst, networkingv1.PolicyTypeEgress, p, dst)
	in = !judges(dst) || !w.contested(dst, networkingv1.PolicyTypeIngress) && w.side(dst, p.Src, src, networkingv1.PolicyTypeIngress, p, dst)
	return out, in
}

// Allowed reports whether a packet passes a node, or arrives if node is Everywhere.
func (w World) Allowed(node string, p Packet) bool {
	out, in := w.Judge(node, p)
	return out && in
}

func (w World) owner(a netip.Addr) *Pod {
	for i := range w.Pods {
		for _, b := range w.Pods[i].Addrs {
			if a == b {
				return &w.Pods[i]
			}
		}
	}
	return nil
}

// contested reports whether a policy isolates a rival of a pod in a direction.
func (w World) contested(pod *Pod, direction networkingv1.PolicyType) bool {
	for _, rival := range pod.Rivals {
		for _, policy := range w.Policies {
			if policy.Namespace == rival.Namespace && selects(&policy.Spec.PodSelector, rival.Labels) && hasType(policy.Spec, direction) {
				return true
			}
		}
	}
	return false
}

// side judges one direction: the pod that policies may isolate, and the other end.
func (w World) side(pod *Pod, addr netip.Addr, other *Pod, direction networkingv1.PolicyType, p Packet, dst *Pod) bool {
	isolated := false
	for _, policy := range w.Policies {
		if policy.Namespace != pod.Namespace || !selects(&policy.Spec.PodSelector, pod.Labels) || !hasType(policy.Spec, direction) {
			continue
		}
		isolated = true
		if direction == networkingv1.PolicyTypeIngress {
			for _, r := range policy.Spec.Ingress {
				if w.peers(policy.Namespace, r.From, addr, other) && ports(r.Ports, p, dst) {
					return true
				}
			}
			continue
		}
		for _, r := range policy.Spec.Egress {
			if w.peers(policy.Namespace, r.To, addr, other) && ports(r.Ports, p, dst) {
				return true
			}
		}
	}
	return !isolated
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

func (w World) peers(namespace string, peers []networkingv1.NetworkPolicyPeer, addr netip.Addr, other *Pod) bool {
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
