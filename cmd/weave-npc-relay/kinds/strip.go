package kinds

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// policyAnnotations is the prefix of the annotations of policies that are for weave-npc.
	policyAnnotations = "weave-npc/"
	// isolationAnnotation is the annotation that isolated namespaces in Kubernetes 1.6.
	isolationAnnotation = "net.beta.kubernetes.io/network-policy"
)

// meta returns what is needed of all metadata.
func meta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

func stripNamespace(n *corev1.Namespace) *corev1.Namespace {
	out := &corev1.Namespace{ObjectMeta: meta(&n.ObjectMeta)}
	out.Labels = n.Labels
	if text, ok := n.Annotations[isolationAnnotation]; ok {
		out.Annotations = map[string]string{isolationAnnotation: text}
	}
	return out
}

func stripNode(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{ObjectMeta: meta(&n.ObjectMeta)}
	out.Labels = n.Labels
	out.Status.Addresses = n.Status.Addresses
	return out
}

func stripPolicy(p *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metaOfPolicy(&p.ObjectMeta), Spec: p.Spec}
}

func stripClusterPolicy(p *clusterPolicy) *clusterPolicy {
	return &clusterPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterPolicyVersion.String(), Kind: "ClusterNetworkPolicy"},
		ObjectMeta: metaOfPolicy(&p.ObjectMeta), Spec: p.Spec,
	}
}

func metaOfPolicy(m *metav1.ObjectMeta) metav1.ObjectMeta {
	out := meta(m)
	out.CreationTimestamp = m.CreationTimestamp
	for key, value := range m.Annotations {
		if strings.HasPrefix(key, policyAnnotations) {
			metav1.SetMetaDataAnnotation(&out, key, value)
		}
	}
	return out
}

func stripPod(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: meta(&p.ObjectMeta)}
	out.Labels = p.Labels
	out.CreationTimestamp = p.CreationTimestamp
	out.DeletionTimestamp = p.DeletionTimestamp
	if c := metav1.GetControllerOfNoCopy(p); c != nil {
		controls := true
		out.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: c.APIVersion, Kind: c.Kind, Name: c.Name, Controller: &controls}}
	}
	out.Spec.NodeName = p.Spec.NodeName
	out.Spec.HostNetwork = p.Spec.HostNetwork
	out.Spec.Containers = withNamedPorts(p.Spec.Containers)
	out.Spec.InitContainers = withNamedPorts(p.Spec.InitContainers)
	stripStatus(&p.Status, &out.Status)
	return out
}

func stripStatus(s, out *corev1.PodStatus) {
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
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: last}}}}
	}
}

// withNamedPorts returns the containers that have named ports, with these alone.
func withNamedPorts(containers []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for i := range containers {
		c := &containers[i]
		var named []corev1.ContainerPort
		for _, p := range c.Ports {
			if p.Name != "" {
				named = append(named,
					corev1.ContainerPort{Name: p.Name, ContainerPort: p.ContainerPort, Protocol: p.Protocol})
			}
		}
		if named != nil {
			out = append(out, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Ports: named})
		}
	}
	return out
}

// lastStart returns the latest time at which a container of a pod was started, which is all that agents make of the
// containers' states.
func lastStart(s *corev1.PodStatus) metav1.Time {
	var last metav1.Time
	take := func(t metav1.Time) {
		if t.After(last.Time) {
			last = t
		}
	}
	all := [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses}
	for _, statuses := range all {
		for i := range statuses {
			for _, state := range []*corev1.ContainerState{&statuses[i].State, &statuses[i].LastTerminationState} {
				if state.Running != nil {
					take(state.Running.StartedAt)
				}
				if state.Terminated != nil {
					take(state.Terminated.StartedAt)
				}
			}
		}
	}
	return last
}
