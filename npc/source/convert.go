package source

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	netutils "k8s.io/utils/net"

	"github.com/weave-npc/weave-npc/npc"
)

// isolationAnnotation is the Kubernetes 1.6 way to isolate all pods of a namespace.
const isolationAnnotation = "net.beta.kubernetes.io/network-policy"

// stored is what an informer stores of an object.
type stored[T any] struct {
	namespace, name string
	uid             types.UID
	version         string   // the resource version
	ignored         []string // what of the object could not be read, in words
	// facts are what is known of the object; nil once the sink has them, so that they are not in memory twice.
	facts *T
}

// GetObjectMeta implements metav1.ObjectMetaAccessor: what client-go needs.
func (s *stored[T]) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: s.namespace, Name: s.name, UID: s.uid, ResourceVersion: s.version}
}

// store makes what is stored of an object. The texts have memory of their own: where an object was read nearly all is given up soon, and each text
// that stayed would keep much else from being given back.
func store[T any](m *metav1.ObjectMeta, facts *T, ignored []string) *stored[T] {
	text := m.Namespace + m.Name + string(m.UID) + m.ResourceVersion
	next := func(n int) (part string) {
		part, text = text[:n], text[n:]
		return part
	}
	return &stored[T]{namespace: next(len(m.Namespace)), name: next(len(m.Name)), uid: types.UID(next(len(m.UID))),
		version: next(len(m.ResourceVersion)), ignored: ignored, facts: facts}
}

// keepNamespace is the transform of the namespaces' informer.
func keepNamespace(obj any) (any, error) {
	n, ok := obj.(*corev1.Namespace)
	if !ok {
		return obj, nil
	}
	facts, ignored := namespaceFacts(n)
	return store(&n.ObjectMeta, &facts, ignored), nil
}

// keepPod is the transform of the pods' informer.
func keepPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	facts, ignored := podFacts(p)
	s := store(&p.ObjectMeta, &facts, ignored)
	facts.Namespace, facts.Name, facts.UID = s.namespace, s.name, s.uid
	return s, nil
}

// keepPolicy is the transform of the policies' informer.
func keepPolicy(obj any) (any, error) {
	p, ok := obj.(*networkingv1.NetworkPolicy)
	if !ok {
		return obj, nil
	}
	meta := metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}
	return store(&p.ObjectMeta, &networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: p.Spec}, nil), nil
}

// namespaceFacts returns the facts of a namespace, and what of it could not be read.
func namespaceFacts(n *corev1.Namespace) (facts npc.Namespace, ignored []string) {
	facts = npc.Namespace{Name: n.Name, UID: n.UID, Labels: n.Labels}
	annotation, ok := n.Annotations[isolationAnnotation]
	if !ok {
		return facts, nil
	}
	var policy struct {
		Ingress struct {
			Isolation string `json:"isolation"`
		} `json:"ingress"`
	}
	if err := json.Unmarshal([]byte(annotation), &policy); err != nil {
		return facts, []string{fmt.Sprintf("annotation %s: %v", isolationAnnotation, err)}
	}
	facts.DefaultDeny = policy.Ingress.Isolation == "DefaultDeny"
	return facts, nil
}

// podFacts returns the facts of a pod, and what of it could not be read.
func podFacts(p *corev1.Pod) (facts npc.Pod, ignored []string) {
	facts = npc.Pod{
		Namespace:   p.Namespace,
		Name:        p.Name,
		UID:         p.UID,
		Labels:      p.Labels,
		Node:        p.Spec.NodeName,
		HostNetwork: p.Spec.HostNetwork,
		Finished:    p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Deleting:    p.DeletionTimestamp != nil,
		Created:     p.CreationTimestamp.Time,
		Ports:       namedPorts(&p.Spec),
	}
	if p.Status.StartTime != nil {
		facts.Started = p.Status.StartTime.Time
	}
	facts.LastStart = lastStart(&p.Status)
	facts.StaleAddrs = !facts.Deleting && lacksSandbox(&p.Status)
	facts.Addrs, ignored = addrs("status.podIPs", podIPs(&p.Status))
	hostAddrs, ignoredHost := addrs("status.hostIPs", hostIPs(&p.Status))
	facts.HostAddrs = hostAddrs
	return facts, append(ignored, ignoredHost...)
}

// lastStart returns when one of a pod's containers was last started, as far as its status tells; zero if it does not.
func lastStart(s *corev1.PodStatus) time.Time {
	var last time.Time
	for _, statuses := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range statuses {
			for _, state := range []*corev1.ContainerState{&statuses[i].State, &statuses[i].LastTerminationState} {
				if state.Running != nil && state.Running.StartedAt.After(last) {
					last = state.Running.StartedAt.Time
				}
				if state.Terminated != nil && state.Terminated.StartedAt.After(last) {
					last = state.Terminated.StartedAt.Time
				}
			}
		}
	}
	return last
}

// lacksSandbox reports whether the kubelet says that a pod's sandbox, which has its addresses, is not there. Kubernetes before 1.29
// does not tell.
func lacksSandbox(s *corev1.PodStatus) bool {
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == corev1.PodReadyToStartContainers {
			return c.Status == corev1.ConditionFalse
		}
	}
	return false
}

// podIPs returns status.podIPs, or status.podIP if there are none.
func podIPs(s *corev1.PodStatus) []string {
	texts := make([]string, 0, len(s.PodIPs))
	for _, ip := range s.PodIPs {
		texts = append(texts, ip.IP)
	}
	if len(texts) == 0 && s.PodIP != "" {
		texts = append(texts, s.PodIP)
	}
	return texts
}

// hostIPs returns status.hostIPs, or status.hostIP if there are none.
func hostIPs(s *corev1.PodStatus) []string {
	texts := make([]string, 0, len(s.HostIPs))
	for _, ip := range s.HostIPs {
		texts = append(texts, ip.IP)
	}
	if len(texts) == 0 && s.HostIP != "" {
		texts = append(texts, s.HostIP)
	}
	return texts
}

// addrs reads addresses as the API reads them, without duplicates, and says which texts are none.
func addrs(field string, texts []string) (found []netip.Addr, ignored []string) {
	for _, text := range texts {
		addr, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(text))
		if !ok {
			ignored = append(ignored, fmt.Sprintf("%s: %q is no address", field, text))
			continue
		}
		if addr = addr.Unmap(); !slices.Contains(found, addr) {
			found = append(found, addr)
		}
	}
	return found, ignored
}

// namedPorts returns the named ports of the containers that run for as long as the pod does.
func namedPorts(spec *corev1.PodSpec) []npc.NamedPort {
	var ports []npc.NamedPort
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			protocol := ProtocolNumber(p.Protocol)
			if p.Name == "" || protocol == 0 || p.ContainerPort < 1 || p.ContainerPort > 65535 {
				continue
			}
			port := npc.NamedPort{Name: p.Name, Protocol: protocol, Port: uint16(p.ContainerPort)}
			if !slices.Contains(ports, port) {
				ports = append(ports, port)
			}
		}
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range spec.Containers {
		add(&spec.Containers[i])
	}
	return ports
}

// ProtocolNumber returns the IP protocol number (IANA), TCP's for no protocol, 0 for one that has no ports.
func ProtocolNumber(p corev1.Protocol) uint8 {
	switch p {
	case corev1.ProtocolTCP, "":
		return 6
	case corev1.ProtocolUDP:
		return 17
	case corev1.ProtocolSCTP:
		return 132
	}
	return 0
}
