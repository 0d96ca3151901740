package lint

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// group is pods of a namespace with the same values of all labels that selectors name, and the same ports. One stands
// for all.
type group struct {
	*npc.Pod
	count int
	// offered are the ports that the containers declare, with names or without.
	offered map[offered]bool
}

type offered struct {
	protocol uint8
	port     uint16
}

// pods are the pods that policies are about, in groups, and labels.
type pods struct {
	view *cluster.View
	// manifests is set if the objects are from manifests.
	manifests   bool
	byNamespace map[string][]*group
	// onHost are pods on the network of their node.
	onHost map[string][]*npc.Pod
	// addrs are those of pods that policies are about, sorted, and hosts those of pods on the network of their node.
	addrs, hosts []netip.Addr
	// podLabels holds the values of the labels that pods of a namespace have, namespaceLabels those of namespaces.
	podLabels       map[string]vocabulary
	namespaceLabels vocabulary
}

// vocabulary is the values that a label has somewhere, by its key.
type vocabulary map[string]map[string]bool

func (v vocabulary) add(labels map[string]string) {
	for k, value := range labels {
		if v[k] == nil {
			v[k] = map[string]bool{}
		}
		v[k][value] = true
	}
}

func newPods(o snapshot.Objects, view *cluster.View) *pods {
	p := &pods{view: view, manifests: o.Positions != nil, byNamespace: map[string][]*group{},
		onHost: map[string][]*npc.Pod{}, podLabels: map[string]vocabulary{}, namespaceLabels: vocabulary{}}
	for _, n := range view.Namespaces {
		p.namespaceLabels.add(n.Labels)
	}
	keys := cluster.PodLabels(view)
	groups := map[string]*group{}
	for _, object := range o.Pods {
		pod := view.Pods[npc.ObjectKey(object.Namespace, object.Name)]
		if pod == nil || pod.Finished {
			continue
		}
		if p.podLabels[pod.Namespace] == nil {
			p.podLabels[pod.Namespace] = vocabulary{}
		}
		p.podLabels[pod.Namespace].add(pod.Labels)
		if pod.HostNetwork {
			p.onHost[pod.Namespace] = append(p.onHost[pod.Namespace], pod)
			p.hosts = append(append(p.hosts, pod.Addrs...), pod.HostAddrs...)
			continue
		}
		p.addrs = append(p.addrs, pod.Addrs...)
		ports := containerPorts(object)
		key := groupKey(pod, ports, keys)
		g := groups[key]
		if g == nil {
			g = &group{Pod: pod, offered: ports}
			groups[key] = g
			p.byNamespace[pod.Namespace] = append(p.byNamespace[pod.Namespace], g)
		}
		g.count++
	}
	slices.SortFunc(p.addrs, netip.Addr.Compare)
	return p
}

// elsewhere reports whether the pods that policies are about are not among the objects: manifests of policies alone
// have none.
func (l *pods) elsewhere() bool {
	return l.manifests && len(l.byNamespace)+len(l.onHost) == 0
}

func groupKey(p *npc.Pod, ports map[offered]bool, keys map[string]bool) string {
	var words []string
	for k, v := range p.Labels {
		if keys[k] {
			words = append(words, k+"="+v)
		}
	}
	for _, port := range p.Ports {
		words = append(words, fmt.Sprintf("%s %d %d", port.Name, port.Protocol, port.Port))
	}
	for port := range ports {
		words = append(words, fmt.Sprintf("%d %d", port.protocol, port.port))
	}
	slices.Sort(words)
	return p.Namespace + "\n" + strings.Join(words, "\n")
}

// containerPorts returns the ports that containers declare.
func containerPorts(p *corev1.Pod) map[offered]bool {
	ports := map[offered]bool{}
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			for _, port := range containers[i].Ports {
				ports[offered{npc.PortProtocol(port.Protocol), uint16(port.ContainerPort)}] = true
			}
		}
	}
	return ports
}

// selected returns the groups that selectors of namespaces and of pods select. Nil namespaces stand for one namespace,
// by its name.
func (l *pods) selected(namespace string, namespaces *policy.Selector, choose policy.Selector) (out []*group) {
	for name := range l.namespacesOf(namespace, namespaces) {
		for _, g := range l.byNamespace[name] {
			if choose.Matches(g.Labels) {
				out = append(out, g)
			}
		}
	}
	return out
}

// namespacesOf yields the names of namespaces that a peer, or a policy, selects.
func (l *pods) namespacesOf(name string, namespaces *policy.Selector) func(func(string) bool) {
	return func(yield func(string) bool) {
		if namespaces == nil {
			yield(name)
			return
		}
		for _, n := range l.view.Namespaces {
			if namespaces.Matches(n.Labels) && !yield(n.Name) {
				return
			}
		}
	}
}

// peerGroups returns the groups that a peer matches by selectors.
func (l *pods) peerGroups(p policy.Peer) []*group {
	if p.Block != nil || p.Nodes != nil || p.Name != "" || p.IsUnknown() {
		return nil
	}
	choose := policy.Selector{}
	if p.Pods != nil {
		choose = *p.Pods
	}
	return l.selected(p.Namespace, p.Namespaces, choose)
}

func countPods(groups []*group) (n int) {
	for _, g := range groups {
		n += g.count
	}
	return n
}
