package manifest

import (
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
)

// stableUID returns the UID of an object without one. It depends on the kind and the name alone.
func stableUID(kind, namespace, name string) types.UID {
	name = "manifest:" + kind + "/" + npc.ObjectKey(namespace, name)
	return types.UID(uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)).String())
}

// setMetaDefaults sets the metadata that an API server sets in an object of a namespace.
func setMetaDefaults(kind string, m *metav1.ObjectMeta) {
	if m.UID == "" {
		m.UID = stableUID(kind, m.Namespace, m.Name)
	}
	m.ResourceVersion = ""
	m.ManagedFields = nil
}

// setClusterMetaDefaults sets the metadata that an API server sets in an object without a namespace.
func setClusterMetaDefaults(kind string, m *metav1.ObjectMeta) {
	if m.UID == "" {
		m.UID = stableUID(kind, "", m.Name)
	}
	m.ResourceVersion = ""
	m.ManagedFields = nil
}

func setNamespaceDefaults(n *corev1.Namespace) {
	setClusterMetaDefaults(KindNamespace, &n.ObjectMeta)
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
}

func setNodeDefaults(n *corev1.Node) { setClusterMetaDefaults(KindNode, &n.ObjectMeta) }

// ImpliedNamespace returns a namespace that no manifest has, but that an object in a manifest names.
func ImpliedNamespace(name string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	setNamespaceDefaults(n)
	return n
}

// setPodDefaults sets the fields of a pod that become facts. A pod with an address and no phase is running. One with
// neither has none: its status is not written.
func setPodDefaults(p *corev1.Pod) {
	setMetaDefaults(KindPod, &p.ObjectMeta)
	setPodSpecDefaults(&p.Spec)

	// The API server believes podIP where podIPs contradicts it.
	s := &p.Status
	switch {
	case s.PodIP == "" && len(s.PodIPs) > 0:
		s.PodIP = s.PodIPs[0].IP
	case s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP):
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
	switch {
	case s.HostIP == "" && len(s.HostIPs) > 0:
		s.HostIP = s.HostIPs[0].IP
	case s.HostIP != "" && len(s.HostIPs) == 0:
		s.HostIPs = []corev1.HostIP{{IP: s.HostIP}}
	}
	if s.Phase == "" && len(s.PodIPs) > 0 {
		s.Phase = corev1.PodRunning
	}
}

func setPodSpecDefaults(s *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for c := range containers {
			for i := range containers[c].Ports {
				if containers[c].Ports[i].Protocol == "" {
					containers[c].Ports[i].Protocol = corev1.ProtocolTCP
				}
			}
		}
	}
}

func setPolicyDefaults(p *networkingv1.NetworkPolicy) {
	setMetaDefaults(KindNetworkPolicy, &p.ObjectMeta)
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	for _, rule := range p.Spec.Ingress {
		setPortDefaults(rule.Ports)
	}
	for _, rule := range p.Spec.Egress {
		setPortDefaults(rule.Ports)
	}
}

// setClusterPolicyDefaults sets the metadata: the resource definition of ClusterNetworkPolicies has no default. A
// status is written by controllers alone.
func setClusterPolicyDefaults(p *v1alpha2.ClusterNetworkPolicy) {
	setClusterMetaDefaults(KindClusterNetworkPolicy, &p.ObjectMeta)
	p.Status = v1alpha2.ClusterNetworkPolicyStatus{}
}

func setPortDefaults(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		if ports[i].Protocol == nil {
			tcp := corev1.ProtocolTCP
			ports[i].Protocol = &tcp
		}
	}
}
