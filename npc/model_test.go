package npc

import (
	"net/netip"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/iptables"
)

// atWork is a model of which the kernels have what they are to have: a pod that a policy isolates.
func atWork(now *time.Time) *Model {
	m := New(Config{NodeName: "n", Hook: HookForward, Gate: GateAuto, MaxListSize: 1024,
		PodRanges: []netip.Prefix{netip.MustParsePrefix("10.32.1.0/24")}})
	m.now = func() time.Time { return *now }
	m.SetNamespace(Namespace{Name: "a", UID: "a"})
	m.SetPod(Pod{Namespace: "a", Name: "web", UID: "web", Node: "n", Addrs: []netip.Addr{netip.MustParseAddr("10.32.1.2")},
		HostAddrs: []netip.Addr{netip.MustParseAddr("172.31.0.1")}})
	o := &networkingv1.NetworkPolicy{}
	o.Namespace, o.Name, o.UID = "a", "p", "p"
	o.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
		{NamespaceSelector: &metav1.LabelSelector{}}, {PodSelector: &metav1.LabelSelector{}}, {IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}}}}
	m.SetPolicy(o)
	m.SetSynced()
	for _, f := range families {
		m.Adopt(f, nil, iptables.Seen{})
	}
	m.Plan(false)
	return m
}

// TestNothingIsKeptInMemory of what is gone.
func TestNothingIsKeptInMemory(t *testing.T) {
	now := time.Unix(1000, 0)
	m := atWork(&now)
	m.DeletePolicy("a", "p", "")
	m.Plan(false)
	m.DeletePod("a", "web", "")
	m.DeleteNamespace("a", "")
	for range 3 {
		m.Plan(true)
	}
	for name, n := range map[string]int{"namespaces": len(m.namespaces), "claims": len(m.claims), "hosts": len(m.hosts),
		"local addresses": len(m.localAddrs), "selectors": len(m.selectors), "selectors of namespaces": len(m.spaces), "policies": m.policyCount, "blocks": len(m.blocks),
		"selectors of the cluster": len(m.cluster.rest) + len(m.cluster.byLabel), "isolated pods": m.isolatedPods[Ingress],
		"pending pods": len(m.pending[Ingress]), "vanished pods": len(m.gates.vanished)} {
		if n != 0 {
			t.Errorf("%d %s are kept", n, name)
		}
	}
	for _, f := range families {
		for name, s := range m.tables[f].sets {
			if !s.fixed {
				t.Errorf("%s is kept", name)
			}
		}
	}
}
