package propose

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
)

// draft is what a policy is made of.
type draft struct {
	*workload
	name  string
	seen  []*seen
	rules [len(npc.Directions)][]draftRule
}

// object returns the policy as the API has it.
func (d draft) object() *networkingv1.NetworkPolicy {
	o := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: d.name},
		Spec: networkingv1.NetworkPolicySpec{PodSelector: *d.selector,
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}},
	}
	for _, r := range d.rules[npc.Ingress] {
		o.Spec.Ingress = append(o.Spec.Ingress,
			networkingv1.NetworkPolicyIngressRule{From: r.peers(d.namespace), Ports: r.ports()})
	}
	for _, r := range d.rules[npc.Egress] {
		o.Spec.Egress = append(o.Spec.Egress,
			networkingv1.NetworkPolicyEgressRule{To: r.peers(d.namespace), Ports: r.ports()})
	}
	return o
}

// peers returns the entries of a rule of a namespace's policy as the API has them.
func (r draftRule) peers(namespace string) (peers []networkingv1.NetworkPolicyPeer) {
	for _, e := range r.entries {
		peers = append(peers, e.peer(namespace))
	}
	return peers
}

func (e *entry) peer(namespace string) networkingv1.NetworkPolicyPeer {
	if e.kind() == blockKind {
		return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: e.block.String(),
			Except: spelling.Texts(e.block.except)}}
	}
	in, pods := dnsNamespace, &metav1.LabelSelector{MatchLabels: map[string]string{dnsLabel: dnsValue}}
	if !e.dns {
		in, pods = e.workload.namespace, e.workload.selector.DeepCopy()
	}
	peer := networkingv1.NetworkPolicyPeer{PodSelector: pods}
	if in != namespace {
		peer.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: in}}
	}
	return peer
}

// ports returns the ports of a rule as the API has them; none for everything.
func (r draftRule) ports() (ports []networkingv1.NetworkPolicyPort) {
	for _, i := range r.items {
		if !i.isEverything() {
			ports = append(ports, i.api())
		}
	}
	return ports
}
