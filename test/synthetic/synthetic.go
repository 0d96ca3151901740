// Package synthetic generates clusters of a given size for benchmarks, as one of their nodes sees them. Everything
// follows from the numbers of a Cluster: the same number always has the same labels, addresses and rules.
//
//	c := synthetic.Cluster{Pods: 1_000, Namespaces: 100, Policies: 100, Local: 110}
//	for i := range c.Pods + c.Local {
//		model.SetPod(c.Pod(i))
//	}
package synthetic

import (
	"fmt"
	"net/netip"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weave-npc/weave-npc/npc"
)

const (
	// Node is the name of the node whose pods are local.
	Node = "node1"
	// Apps is the number of values of the label app in a namespace.
	Apps = 20
)

// Cluster is the size of a cluster.
type Cluster struct {
	Pods       int // on other nodes
	Namespaces int
	Policies   int
	Local      int // pods on Node
}

// Sizes returns the clusters that benchmarks measure, small ones first.
func Sizes() []Cluster {
	return []Cluster{
		{Pods: 10, Namespaces: 10, Policies: 10, Local: 10},
		{Pods: 100, Namespaces: 10, Policies: 10, Local: 10},
		{Pods: 1_000, Namespaces: 100, Policies: 100, Local: 110},
		{Pods: 10_000, Namespaces: 100, Policies: 1_000, Local: 110},
		{Pods: 100_000, Namespaces: 2_000, Policies: 5_000, Local: 110},
	}
}

// String returns the size as a part of a benchmark's name.
func (c Cluster) String() string {
	return fmt.Sprintf("pods=%d/namespaces=%d/policies=%d/local=%d", c.Pods, c.Namespaces, c.Policies, c.Local)
}

// NamespaceName returns the name of namespace i.
func NamespaceName(i int) string { return fmt.Sprintf("ns-%04d", i) }

// Namespace returns namespace i.
func Namespace(i int) npc.Namespace {
	name := NamespaceName(i)
	return npc.Namespace{Name: name, UID: types.UID(name), Labels: map[string]string{
		"kubernetes.io/metadata.name": name,
		"team":                        fmt.Sprintf("team-%d", i%10),
		"tier":                        []string{"dev", "prod"}[i%2],
	}}
}

// Labels returns the labels of pod i of other nodes, and of local pod i.
func (c Cluster) Labels(i int) map[string]string {
	return map[string]string{"app": fmt.Sprintf("app-%d", i/c.Namespaces%Apps), "version": fmt.Sprintf("v%d", i%3),
		"pod-template-hash": fmt.Sprintf("%08x", i)}
}

// Pod returns pod i. The first c.Pods pods run on other nodes, the next c.Local ones on Node.
func (c Cluster) Pod(i int) npc.Pod {
	p := npc.Pod{
		Namespace: NamespaceName(i % c.Namespaces),
		Name:      fmt.Sprintf("pod-%06d", i),
		UID:       types.UID(fmt.Sprintf("%036d", i)),
		Labels:    c.Labels(i),
		Node:      fmt.Sprintf("node-%d", i/100),
		Started:   time.Unix(int64(i), 0),
		Created:   time.Unix(int64(i), 0),
		Addrs:     []netip.Addr{netip.AddrFrom4([4]byte{10, byte(64 + i>>16), byte(i >> 8), byte(i)})},
		HostAddrs: []netip.Addr{netip.AddrFrom4([4]byte{192, 168, byte(i / 100 >> 8), byte(i / 100)})},
		Ports:     []npc.NamedPort{{Name: "http", Protocol: 6, Port: 80}},
	}
	if i >= c.Pods {
		local := i - c.Pods
		p.Node, p.Labels, p.Namespace = Node, c.Labels(local), NamespaceName(local%c.Namespaces)
		p.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{10, 32, 1, byte(local + 2)})}
	}
	return p
}

// Policy returns policy i. Its three ingress rules have a peer each: pods of the own namespace, namespaces, and pods of
// namespaces. Policies with odd numbers restrict egress too, by an ipBlock.
func (c Cluster) Policy(i int) *networkingv1.NetworkPolicy {
	k := i / c.Namespaces
	app := func(n int) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprintf("app-%d", n%Apps)}}
	}
	ports := func(numbers ...int32) (out []networkingv1.NetworkPolicyPort) {
		for _, n := range numbers {
			p := intstr.FromInt32(n)
			out = append(out, networkingv1.NetworkPolicyPort{Port: &p})
		}
		return out
	}
	p := &networkingv1.NetworkPolicy{}
	p.Namespace, p.Name = NamespaceName(i%c.Namespaces), fmt.Sprintf("np-%05d", i)
	p.UID = types.UID(p.Name)
	p.Spec.PodSelector = *app(k)
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{
		{From: []networkingv1.NetworkPolicyPeer{{PodSelector: app(k + 1)}}, Ports: ports(80, 443)},
		{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"team": fmt.Sprintf("team-%d", k%10)}}}}, Ports: ports(8080)},
		{From: []networkingv1.NetworkPolicyPeer{{PodSelector: app(k + 3), NamespaceSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"tier": "prod"}}}}, Ports: ports(9090)},
	}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if i%2 == 1 {
		p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{
			IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.9.0.0/16"}}}}}}
	}
	return p
}
