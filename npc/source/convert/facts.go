package convert

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"

	"github.com/weave-npc/weave-npc/npc"
)

// isolationAnnotation isolates all pods of a namespace. It is from Kubernetes 1.6, which had no policies that do so.
const isolationAnnotation = "net.beta.kubernetes.io/network-policy"

// OfNamespace returns the facts of a namespace, and a text for each part of it that cannot be read.
func OfNamespace(n *corev1.Namespace) (facts npc.Namespace, ignored []string) {
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

// OfNode returns the facts of a Node. Host names are among its addresses by right. An unspecified address is none that
// packets are sent to, and no set can hold it.
func OfNode(n *corev1.Node) npc.Node {
	var texts []string
	for _, a := range n.Status.Addresses {
		texts = append(texts, a.Address)
	}
	addrs, _ := Addrs("status.addresses", texts)
	return npc.Node{Name: n.Name, UID: n.UID, Labels: n.Labels,
		Addrs: slices.DeleteFunc(addrs, netip.Addr.IsUnspecified)}
}

// OfPod returns the facts of a pod, and a text for each part of it that cannot be read.
func OfPod(p *corev1.Pod) (facts npc.Pod, ignored []string) {
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
	}
	unkept := tooLarge(p)
	if unkept == "" {
		facts.Ports = portsOf(&p.Spec, false)
	} else {
		facts.Labels, facts.Unlabelled = nil, true
	}
	facts.Workload = workload(p, facts.Labels)
	if p.Status.StartTime != nil {
		facts.Started = p.Status.StartTime.Time
	}
	facts.LastStart = lastStart(&p.Status)
	facts.StaleAddrs = !facts.Deleting && lacksSandbox(&p.Status)
	facts.Addrs, ignored = Addrs("status.podIPs", addressTexts(p.Status.PodIPs, p.Status.PodIP))
	hostAddrs, ignoredHost := Addrs("status.hostIPs", addressTexts(p.Status.HostIPs, p.Status.HostIP))
	facts.HostAddrs = hostAddrs
	if ignored = append(ignored, ignoredHost...); unkept != "" {
		ignored = append(ignored, unkept)
	}
	return facts, ignored
}

// workload returns what made a pod: its controller, or the Deployment of that if it is a ReplicaSet which a Deployment
// made. The pods that a kubelet makes of its own files have its Node for a controller; nothing made those.
func workload(p *corev1.Pod, labels map[string]string) *npc.Workload {
	c := metav1.GetControllerOfNoCopy(p)
	if c == nil || c.Kind == "" || c.Name == "" || c.Kind == "Node" {
		return nil
	}
	if hash := labels[appsv1.DefaultDeploymentUniqueLabelKey]; c.Kind == "ReplicaSet" && hash != "" {
		if name, ok := strings.CutSuffix(c.Name, "-"+hash); ok && name != "" {
			return &npc.Workload{Kind: "Deployment", Name: name}
		}
	}
	return &npc.Workload{Kind: c.Kind, Name: c.Name}
}

// lastStart returns the latest time at which a container of a pod was started; zero if the status has none.
func lastStart(s *corev1.PodStatus) time.Time {
	var last time.Time
	all := [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses}
	for _, statuses := range all {
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

// lacksSandbox reports whether a pod's sandbox, which has its addresses, is known to be absent. Kubernetes before 1.29
// does not report that.
func lacksSandbox(s *corev1.PodStatus) bool {
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == corev1.PodReadyToStartContainers {
			return c.Status == corev1.ConditionFalse
		}
	}
	return false
}

// addressTexts returns the addresses of a list, or the single address of the other API field if the list is empty.
func addressTexts[T corev1.PodIP | corev1.HostIP](list []T, single string) []string {
	if len(list) == 0 && single != "" {
		return []string{single}
	}
	texts := make([]string, 0, len(list))
	for _, ip := range list {
		texts = append(texts, corev1.PodIP(ip).IP)
	}
	return texts
}

// Addrs reads the addresses of a field as the API server does, without duplicates, and returns a text for each that is
// none.
func Addrs(field string, texts []string) (found []netip.Addr, ignored []string) {
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

// DeclaredPorts returns all ports that a pod declares, also those without a name.
func DeclaredPorts(p *corev1.Pod) []npc.NamedPort { return portsOf(&p.Spec, true) }

// portsOf returns the ports of the containers that run as long as the pod does: those with names, or all, at
// most maxPorts.
func portsOf(spec *corev1.PodSpec, all bool) []npc.NamedPort {
	var ports []npc.NamedPort
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			protocol := npc.PortProtocol(p.Protocol)
			if len(ports) == maxPorts || p.Name == "" && !all || protocol == 0 || p.ContainerPort < 1 || p.ContainerPort > 65535 {
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
