package controller_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/test/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// withNode returns a history in which the node has 10.32.1.6 and fd32:1::6.
func withNode(t *testing.T) *history {
	h := newHistory(t, t)
	h.setNodeAddrs([]netip.Addr{netip.MustParseAddr("10.32.1.6"), netip.MustParseAddr("fd32:1::6")})
	h.setNode(npc.Node{Name: cluster.Node, UID: cluster.Node, Addrs: h.node})
	return h
}

// TestS93_AnAddressGetsAnotherSubject hands an address over to a pod that other policies deny all. Between the steps of
// that nothing is accepted which the policies of both pods deny, the node among it, whatever the address loses at once
// and gets only once the connections of the former pod are deleted.
func TestS93_AnAddressGetsAnotherSubject(t *testing.T) {
	subjects := []map[string]string{{"admin": "1"}, {"admin": "2"}, {"baseline": "1"}, {"baseline": "2"},
		{"admin": "1", "isolated": "yes"}, {"admin": "2", "baseline": "1"}}
	for _, from := range subjects {
		for _, to := range subjects {
			t.Run(fmt.Sprintf("%v_to_%v", from, to), func(t *testing.T) {
				for _, name := range []string{"web", "later"} { // the pod is made again, or another one claims its address
					h := withNode(t)
					h.plain = true
					h.setNamespace("a", nil)
					pod := func(name string, started int64, last string, labels map[string]string) npc.Pod {
						return npc.Pod{Namespace: "a", Name: name, UID: types.UID(fmt.Sprint(name, started)), Node: cluster.Node, Labels: labels,
							Addrs: []netip.Addr{netip.MustParseAddr("10.32.1." + last)}, Started: time.Unix(started, 0)}
					}
					h.setPod(pod("other", 1, "3", nil))
					h.setPod(pod("web", 1, "2", from))
					for tier, label := range map[string]string{"Admin": "admin", "Baseline": "baseline"} {
						for _, n := range []string{"1", "2"} {
							h.setClusterPolicy(fixture.ClusterPolicy(t, label+n, `{tier: `+tier+`, priority: `+n+`,
								subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {`+label+`: "`+n+`"}}}},
								ingress: [{action: Deny, from: [{namespaces: {}}]}],
								egress: [{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}]}`))
						}
					}
					h.setPolicy(fixture.Policy(t, "a/isolated", `{podSelector: {matchLabels: {isolated: "yes"}}, policyTypes: [Ingress, Egress]}`))
					h.Sync()
					h.check()
					h.between("pod", func() { h.setPod(pod(name, 2, "2", to)) }, func(string) {})
					h.check()
					if name != "web" {
						h.between("delete", func() { h.deletePod("a/web") }, func(string) {})
						h.check()
					}
				}
			})
		}
	}
}

// TestS93_IsolatedSubjectsMoveWithTheirPeers relabels the namespace of isolated pods that Admin policies deny the node,
// before and after. They are taken out of their lists meanwhile, and NetworkPolicies let them pass to the node.
func TestS93_IsolatedSubjectsMoveWithTheirPeers(t *testing.T) {
	h := withNode(t)
	for i, pod := range []struct{ namespace, name, x string }{{"a", "web", "1"}, {"a", "client", "1"}, {"b", "other", "1"}, {"c", "other", "2"}} {
		h.setNamespace(pod.namespace, map[string]string{"x": pod.x})
		h.setPod(npc.Pod{Namespace: pod.namespace, Name: pod.name, UID: types.UID(pod.namespace + pod.name), Node: cluster.Node,
			Addrs: []netip.Addr{netip.MustParseAddr(fmt.Sprint("10.32.1.", i+2)), netip.MustParseAddr(fmt.Sprint("fd32:1::", i+2))}})
	}
	for _, n := range []string{"1", "2"} {
		h.setClusterPolicy(fixture.ClusterPolicy(t, "admin"+n, `{tier: Admin, priority: `+n+`, subject: {namespaces: {matchLabels: {x: "`+n+`"}}},
			ingress: [{action: Deny, from: [{namespaces: {matchLabels: {x: "`+n+`"}}}]}],
			egress: [{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}]}`))
	}
	h.setPolicy(fixture.Policy(t, "a/all", `{podSelector: {}, policyTypes: [Ingress, Egress]}`))
	h.Sync()
	h.check()
	for _, x := range []string{"2", "1"} {
		h.between("namespace", func() { h.setNamespace("a", map[string]string{"x": x}) }, func(string) {})
		h.check()
	}
}

// TestS93_ASubjectMovesWithItsNamespaceAsAPeer relabels the namespace of pods that either an Admin policy denies each
// other, or the NetworkPolicy that no longer has the namespace among its peers, also across restarts.
func TestS93_ASubjectMovesWithItsNamespaceAsAPeer(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted_%t", restarted), func(t *testing.T) {
			h := newHistory(t, t)
			h.setNamespace("a", map[string]string{"x": "1"})
			for i, name := range []string{"client", "server"} {
				h.setPod(npc.Pod{Namespace: "a", Name: name, UID: types.UID(name), Node: cluster.Node, Labels: map[string]string{"app": name},
					Addrs: fixture.Addrs(fmt.Sprintf("10.32.1.%[1]d fd32:1::%[1]d", i+2))})
			}
			h.setClusterPolicy(fixture.ClusterPolicy(t, "admin", `{tier: Admin, priority: 1, subject: {namespaces: {matchLabels: {x: "1"}}},
				egress: [{action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}]}`))
			h.setPolicy(fixture.Policy(t, "a/p", `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress],
				egress: [{to: [{namespaceSelector: {matchLabels: {x: "1"}}}]}]}`))
			h.Sync()
			h.check()
			for _, x := range []string{"2", "1"} {
				was := h.begin(func() { h.setNamespace("a", map[string]string{"x": x}) })
				if restarted { // the list of namespaces that then has no members has no family
					h.killed(0)
					h = h.successor(t)
				}
				h.evaluateTransition(transition{kind: "namespace", before: was.evaluated(), after: h.state.evaluated()}, was.node, func(string) {})
				h.check()
			}
		})
	}
}
