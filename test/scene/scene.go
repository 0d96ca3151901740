// Package scene draws small random clusters for tests, in the form of the independent reference model and in that of
// the product. They are complete, or limited to what a user without the right to read all namespaces sees.
//
//	s := scene.Draw(t)
//	v := s.Cluster(scene.Nothing).View()    // everything is read
//	v = s.Cluster(s.DrawHidden(t)).View()
package scene

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/refmodel"
	"github.com/weave-npc/weave-npc/test/tiers"
)

// Scene is a cluster.
type Scene struct{ refmodel.State }

var namespaces = []string{"a", "b", "c"}

// Draw draws a cluster of three namespaces, a few pods on two nodes, and policies of both kinds about them.
func Draw(t *rapid.T) *Scene {
	s := &Scene{refmodel.State{Namespaces: map[string]map[string]string{}}}
	for _, ns := range namespaces {
		s.Namespaces[ns] = fixture.Namespace(ns + " team=" + pick(t, "team", "x", "y")).Labels
	}
	for i := 1; i <= 2; i++ {
		facts := fmt.Sprintf("node%[1]d 172.31.0.%[1]d fd31::%[1]d zone=%[2]s", i, pick(t, "zone", "x", "y"))
		s.Nodes = append(s.Nodes, fixture.ModelNode(fixture.Node(facts)))
	}
	for i := range rapid.IntRange(2, 8).Draw(t, "pods") {
		s.Pods = append(s.Pods, drawPod(t, i))
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "policies") {
		s.Policies = append(s.Policies, drawPolicy(t, i))
	}
	byName := map[string]bool{}
	for range rapid.IntRange(0, 3).Draw(t, "cluster policies") {
		if p := tiers.Draw(t, universe()); !byName[p.Name] {
			byName[p.Name] = true
			s.ClusterPolicies = append(s.ClusterPolicies, *p)
		}
	}
	return s
}

func pick[T any](t *rapid.T, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(t, label)
}

func drawPod(t *rapid.T, i int) refmodel.Pod {
	facts := fmt.Sprintf("%s/p%[2]d %[3]s app=%[4]s pod-template-hash=%[2]d", pick(t, "namespace", namespaces...), i,
		pick(t, "node", "node1", "node2"), pick(t, "app", "web", "db"))
	families := pick(t, "families", 1, 2, 3, 3)
	if families&1 != 0 {
		facts += fmt.Sprintf(" 10.32.%d.%d", i%2, 8+i)
	}
	if families&2 != 0 {
		facts += fmt.Sprintf(" fd32::%d:%d", i%2, 8+i)
	}
	return fixture.ModelPod(fixture.Pod(facts + pick(t, "http", "", " http:80", " http:8080")))
}

func drawPolicy(t *rapid.T, i int) networkingv1.NetworkPolicy {
	p := networkingv1.NetworkPolicy{}
	p.Namespace, p.Name = pick(t, "namespace", namespaces...), fmt.Sprint("q", i)
	p.Spec.PodSelector = *drawSelector(t, "app", "web", "db")
	type types = []networkingv1.PolicyType
	p.Spec.PolicyTypes = pick(t, "types", types{"Ingress"}, types{"Egress"}, types{"Ingress", "Egress"})
	for range rapid.IntRange(0, 2).Draw(t, "ingress") {
		rule := networkingv1.NetworkPolicyIngressRule{From: drawPeers(t), Ports: drawPorts(t)}
		p.Spec.Ingress = append(p.Spec.Ingress, rule)
	}
	for range rapid.IntRange(0, 2).Draw(t, "egress") {
		rule := networkingv1.NetworkPolicyEgressRule{To: drawPeers(t), Ports: drawPorts(t)}
		p.Spec.Egress = append(p.Spec.Egress, rule)
	}
	return p
}

func drawSelector(t *rapid.T, key string, values ...string) *metav1.LabelSelector {
	expression := func(operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		requirement := metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{requirement}}
	}
	switch rapid.IntRange(0, 5).Draw(t, "selector") {
	case 0:
		return &metav1.LabelSelector{}
	case 1:
		return expression(metav1.LabelSelectorOpNotIn, pick(t, "value", values...))
	case 2:
		return expression(pick(t, "operator", metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist))
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: pick(t, "value", values...)}}
}

func drawPeers(t *rapid.T) (peers []networkingv1.NetworkPolicyPeer) {
	for range rapid.IntRange(0, 2).Draw(t, "peers") {
		var p networkingv1.NetworkPolicyPeer
		kind := rapid.IntRange(0, 5).Draw(t, "peer")
		switch kind {
		case 0, 1:
			p.IPBlock = &networkingv1.IPBlock{CIDR: pick(t, "cidr", "0.0.0.0/0", "::/0", "10.32.0.0/16",
				"172.31.0.0/16", "10.32.0.8/29", "fd32::1:0/112", "198.51.100.0/24")}
			if p.IPBlock.CIDR == "10.32.0.0/16" {
				p.IPBlock.Except = []string{"10.32.1.0/24"}
			}
		case 2:
			p.NamespaceSelector = drawSelector(t, corev1.LabelMetadataName, namespaces...)
		case 3, 4:
			p.NamespaceSelector = drawSelector(t, "team", "x", "y")
		}
		if kind == 4 || kind == 5 {
			p.PodSelector = drawSelector(t, "app", "web", "db")
		}
		peers = append(peers, p)
	}
	return peers
}

func drawPorts(t *rapid.T) (ports []networkingv1.NetworkPolicyPort) {
	for range rapid.IntRange(0, 2).Draw(t, "ports") {
		p := networkingv1.NetworkPolicyPort{Protocol: new(pick(t, "protocol",
			corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP))}
		switch rapid.IntRange(0, 4).Draw(t, "port") {
		case 0, 1:
			p.Port = new(intstr.FromInt32(pick[int32](t, "number", 1, 80, 443, 65535)))
		case 2:
			p.Port = new(intstr.FromInt32(pick[int32](t, "first", 79, 80)))
			p.EndPort = new(pick[int32](t, "last", 80, 8080, 65535))
		case 3:
			p.Port = new(intstr.FromString("http"))
		}
		ports = append(ports, p)
	}
	return ports
}

func universe() tiers.Universe {
	return tiers.Universe{
		Names:      []string{"p", "q", "r"},
		Namespaces: []map[string]string{nil, {"team": "x"}, {"team": "y"}},
		Pods:       []map[string]string{nil, {"app": "web"}, {"app": "db"}},
		Nodes:      []map[string]string{nil, {"zone": "x"}},
		CIDRs: []v1alpha2.CIDR{
			"0.0.0.0/0", "::/0", "10.32.0.0/17", "172.31.0.0/31", "fd32::1:0/112", "198.51.100.0/25",
		},
		Ports:       []int32{80, 443, 8080},
		PortNames:   []string{"http"},
		DomainNames: []v1alpha2.DomainName{"*.example.com"},
	}
}

// Nothing is hidden.
func Nothing(string) (labels, pods, policies bool) { return false, false, false }

// DrawHidden draws which namespaces a user may not read: the labels of each, its pods, its policies.
func (s *Scene) DrawHidden(t *rapid.T) func(namespace string) (labels, pods, policies bool) {
	hidden := map[string]int{}
	for _, ns := range namespaces {
		hidden[ns] = pick(t, "hidden", 0, 0, 1, 2, 4, 7, 7, rapid.IntRange(0, 7).Draw(t, "kinds"))
	}
	return func(ns string) (labels, pods, policies bool) {
		return hidden[ns]&1 != 0, hidden[ns]&2 != 0, hidden[ns]&4 != 0
	}
}

// Cluster returns the cluster as a user sees it who may not read what is hidden.
func (s *Scene) Cluster(hidden func(namespace string) (labels, pods, policies bool)) *cluster.Cluster {
	c := cluster.New()
	c.SetLearned(map[netip.Addr][]string{}) // no resolver has given an address for a domain name
	unreadable := [3]npc.Partly{}
	for _, ns := range namespaces {
		var lacks [3]bool
		lacks[0], lacks[1], lacks[2] = hidden(ns)
		for i := range unreadable {
			if lacks[i] {
				unreadable[i].Reason = "forbidden"
				continue
			}
			if unreadable[i].Read == nil {
				unreadable[i].Read = map[string]bool{}
			}
			unreadable[i].Read[ns] = true
		}
		if !lacks[0] {
			c.SetNamespace(npc.Namespace{Name: ns, Labels: s.Namespaces[ns]})
		}
	}
	c.SetUnreadable(npc.Unreadable{Namespaces: unreadable[0], Pods: unreadable[1], Policies: unreadable[2]})
	for _, p := range s.Pods {
		if !unreadable[1].Lacks(p.Namespace) {
			c.SetPod(s.pod(p))
		}
	}
	for i := range s.Policies {
		if !unreadable[2].Lacks(s.Policies[i].Namespace) {
			c.SetPolicy(&s.Policies[i])
		}
	}
	for i := range s.ClusterPolicies {
		c.SetClusterPolicy(&s.ClusterPolicies[i])
	}
	for _, n := range s.Nodes {
		c.SetNode(npc.Node{Name: n.Name, Labels: n.Labels, Addrs: n.Addrs})
	}
	return c
}

func (s *Scene) pod(p refmodel.Pod) npc.Pod {
	out := fixture.OfModel(p)
	for _, n := range s.Nodes {
		if n.Name == p.Node {
			out.HostAddrs = n.Addrs
		}
	}
	return out
}

// Services are all services that policies of a scene may distinguish, the adjacent ports, and icmp.
func Services() []flow.Service {
	out := []flow.Service{{Protocol: npc.ICMP}}
	for _, protocol := range npc.PortProtocols {
		for _, port := range []uint16{
			1, 2, 78, 79, 80, 81, 82, 442, 443, 444, 445, 8079, 8080, 8081, 8082, 65534, 65535,
		} {
			out = append(out, flow.Service{Protocol: protocol, Port: port})
		}
	}
	return out
}

// Outside are addresses of no pod and no node.
func Outside() []netip.Addr {
	return fixture.Addrs("0.0.0.1 10.31.255.255 10.32.0.1 10.32.0.200 10.32.1.200 10.33.0.0 172.30.255.255 " +
		"172.31.0.9 172.32.0.1 198.51.100.1 198.51.100.200 198.51.101.1 203.0.113.9 " +
		"fd32::99 fd32::1:99 fd32::2:99 2001:db8::1")
}

// Reach returns the reference model's answer about two ends with some addresses: allowed, denied, partly (allowed in
// one family), or never (no family in common).
func (s *Scene) Reach(from, to []netip.Addr, service flow.Service) string {
	flows, allowed := 0, 0
	for _, a := range from {
		for _, b := range to {
			if a.Is4() != b.Is4() {
				continue
			}
			flows++
			if s.Allowed(refmodel.Everywhere, fixture.ModelPacket(a, b, service)) {
				allowed++
			}
		}
	}
	switch {
	case flows == 0:
		return "never"
	case allowed == 0:
		return "denied"
	case allowed == flows:
		return "allowed"
	}
	return "partly"
}

// Pod returns a pod by its namespace/name.
func (s *Scene) Pod(name string) *refmodel.Pod {
	i := slices.IndexFunc(s.Pods, func(p refmodel.Pod) bool { return p.Namespace+"/"+p.Name == name })
	return &s.Pods[i]
}
