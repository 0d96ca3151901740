package synthetic

import (
	"fmt"
	"net/netip"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
)

// Pair is a cluster with a client and a server on Node, whose policies differ by the label of their peer. Pods of
// another node have the labels, one each; the client and the server have one of them too.
type Pair struct {
	Policies   int
	Peers      int  // labels; with fewer than policies, several policies have the same
	Label      int  // that the client and the server have
	ServerOnly bool // the policies do not select the client
}

// Pairs returns the pairs that benchmarks measure. Rules are in the order of the sets' names, which are hashes: the
// rules that allow the client are in the middle.
func Pairs() []Pair {
	return []Pair{{}, {Policies: 1, Peers: 1}, {Policies: 100, Peers: 100, Label: 29},
		{Policies: 1_000, Peers: 50, Label: 29, ServerOnly: true}}
}

// String returns the size as a part of a benchmark's name.
func (p Pair) String() string { return fmt.Sprintf("policies=%d/peers=%d", p.Policies, p.Peers) }

// Pods returns the client, the server, a pod of Node that no policy allows and none isolates, and the peers.
func (p Pair) Pods(client, server, other netip.Addr) []npc.Pod {
	pod := func(name, node string, addr netip.Addr, labels map[string]string) npc.Pod {
		return npc.Pod{Namespace: NamespaceName(0), Name: name, UID: types.UID(name), Node: node, Labels: labels,
			Addrs: []netip.Addr{addr}, Created: time.Unix(1, 0), Started: time.Unix(1, 0)}
	}
	labels := func(app string, peer int) map[string]string {
		return map[string]string{"app": app, "pair": "yes", "peer": fmt.Sprint(peer)}
	}
	out := []npc.Pod{pod("client", Node, client, labels("client", p.Label)),
		pod("server", Node, server, labels("server", p.Label)), pod("other", Node, other, nil)}
	for i := range p.Peers {
		out = append(out, pod(fmt.Sprintf("peer-%d", i), "other-node", netip.AddrFrom4([4]byte{10, 64, 0, byte(i + 1)}),
			map[string]string{"peer": fmt.Sprint(i)}))
	}
	return out
}

// Policy returns policy i.
func (p Pair) Policy(i int) *networkingv1.NetworkPolicy {
	out := &networkingv1.NetworkPolicy{}
	out.APIVersion, out.Kind = "networking.k8s.io/v1", "NetworkPolicy"
	out.Namespace, out.Name = NamespaceName(0), fmt.Sprintf("pair-%d", i)
	out.UID = types.UID(out.Name)
	peers := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{
		MatchLabels: map[string]string{"peer": fmt.Sprint(i % p.Peers)}}}}
	out.Spec = networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pair": "yes"}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: peers}},
		Egress:      []networkingv1.NetworkPolicyEgressRule{{To: peers}},
	}
	if p.ServerOnly {
		out.Spec.PodSelector.MatchLabels = map[string]string{"app": "server"}
		out.Spec.PolicyTypes, out.Spec.Egress = out.Spec.PolicyTypes[:1], nil
	}
	return out
}
