package convert

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/npc/policy/staged"
)

// meta returns what is needed of all metadata.
func meta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

// ReduceNamespace returns the part of a namespace that its facts depend on.
func ReduceNamespace(n *corev1.Namespace) *corev1.Namespace {
	out := &corev1.Namespace{ObjectMeta: meta(&n.ObjectMeta)}
	out.Labels = n.Labels
	if text, ok := n.Annotations[isolationAnnotation]; ok {
		out.Annotations = map[string]string{isolationAnnotation: text}
	}
	return out
}

// ReduceNode returns the part of a Node that its facts depend on.
func ReduceNode(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{ObjectMeta: meta(&n.ObjectMeta)}
	out.Labels = n.Labels
	out.Status.Addresses = n.Status.Addresses
	return out
}

// ReducePolicy returns the part of a policy that is needed.
func ReducePolicy(p *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: PolicyMeta(&p.ObjectMeta), Spec: p.Spec}
}

// PolicyMeta returns the part of a policy's metadata that is needed: its identity, its age, and the annotations about
// staging.
func PolicyMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	out := meta(m)
	out.CreationTimestamp = m.CreationTimestamp
	for _, key := range []string{staged.Annotation, staged.ReplacesAnnotation, staged.RemovesAnnotation} {
		if value, ok := m.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&out, key, value)
		}
	}
	return out
}

// ReducePod returns the part of a pod that its facts, its owner and its declared ports depend on. Most of a pod is something else.
func ReducePod(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: meta(&p.ObjectMeta)}
	out.Labels = cutLabels(p.Labels)
	out.CreationTimestamp = p.CreationTimestamp
	out.DeletionTimestamp = p.DeletionTimestamp
	if c := metav1.GetControllerOfNoCopy(p); c != nil {
		controls := true
		out.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: c.APIVersion, Kind: c.Kind, Name: c.Name, Controller: &controls}}
	}
	out.Spec.NodeName = p.Spec.NodeName
	out.Spec.HostNetwork = p.Spec.HostNetwork
	var kept portCount
	out.Spec.Containers = kept.withPorts(p.Spec.Containers)
	out.Spec.InitContainers = kept.withPorts(p.Spec.InitContainers)
	reduceStatus(&p.Status, &out.Status)
	return out
}

func reduceStatus(s, out *corev1.PodStatus) {
	out.Phase = s.Phase
	out.PodIP, out.PodIPs = s.PodIP, s.PodIPs
	out.HostIP, out.HostIPs = s.HostIP, s.HostIPs
	out.StartTime = s.StartTime
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == corev1.PodReadyToStartContainers {
			out.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
			break
		}
	}
	if last := lastStart(s); !last.IsZero() {
		out.ContainerStatuses = []corev1.ContainerStatus{{
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(last)}}}}
	}
}

// portCount is how many ports of a pod were kept, with names and without.
type portCount struct{ named, unnamed int }

// withPorts returns the containers that declare ports, with these alone, as far as facts depend on them.
func (n *portCount) withPorts(containers []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for i := range containers {
		c := &containers[i]
		var ports []corev1.ContainerPort
		for _, p := range c.Ports {
			count := &n.unnamed
			if p.Name != "" {
				count = &n.named
			}
			if *count > maxPorts {
				continue
			}
			*count++
			ports = append(ports,
				corev1.ContainerPort{Name: p.Name, ContainerPort: p.ContainerPort, Protocol: p.Protocol})
		}
		if ports != nil {
			out = append(out, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Ports: ports})
		}
	}
	return out
}
