package controller

import (
	"net/netip"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
)

// atWork is a model whose kernels are in the desired state: a policy isolates a pod.
func atWork(now *time.Time) *Controller {
	m := New(enforce.Config{NodeName: "n", ForwardJump: true, FailClosed: enforce.FailClosedAuto, MaxListSize: 1024,
		PodRanges: []netip.Prefix{netip.MustParsePrefix("10.32.1.0/24")}})
	m.state.now = func() time.Time { return *now }
	m.SetNamespace(npc.Namespace{Name: "a", UID: "a"})
	m.SetPod(npc.Pod{Namespace: "a", Name: "web", UID: "web", Node: "n", Addrs: []netip.Addr{netip.MustParseAddr("10.32.1.2")},
		HostAddrs: []netip.Addr{netip.MustParseAddr("172.31.0.1")}})
	o := &networkingv1.NetworkPolicy{}
	o.Namespace, o.Name, o.UID = "a", "p", "p"
	o.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
		{NamespaceSelector: &metav1.LabelSelector{}}, {PodSelector: &metav1.LabelSelector{}}, {IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}}}}
	m.SetPolicy(o)
	m.SetSynced()
	for _, f := range npc.Families {
		m.Planner().LoadChains(f, iptables.Seen{})
		m.Planner().LoadSets(f, nil)
	}
	m.carryOut(false)
	m.Planner().Resume()
	return m
}

// TestNothingIsKeptInMemory of what is gone.
func TestNothingIsKeptInMemory(t *testing.T) {
	now := time.Unix(1000, 0)
	m := atWork(&now)
	m.DeletePolicy("a", "p", "")
	m.carryOut(false)
	m.Planner().Resume()
	m.DeletePod("a", "web", "")
	m.DeleteNamespace("a", "")
	for range 3 {
		m.carryOut(true)
		m.Planner().Resume()
	}
	counts := m.state.isolation.Counts()
	for name, n := range map[string]int{"local pods": m.state.index.CountLocal(), "policies": counts.Policies, "isolated pods": counts.Isolated[npc.Ingress],
		"waiting pods": m.state.failClosed.Waiting(npc.Ingress), "sets of policies": len(m.state.index.Sets.Uses())} {
		if n != 0 {
			t.Errorf("%d %s are kept", n, name)
		}
	}
	for _, f := range npc.Families {
		for s := range m.state.tables[f].Sets.OfPods() {
			t.Errorf("%s is kept", s.Name)
		}
	}
}

// TestWhatIsPlanned: pods change all the time, and most changes concern no policy.
func TestWhatIsPlanned(t *testing.T) {
	web := npc.Pod{Namespace: "a", Name: "web", UID: "web", Node: "n", Addrs: []netip.Addr{netip.MustParseAddr("10.32.1.2")},
		HostAddrs: []netip.Addr{netip.MustParseAddr("172.31.0.1")}}
	elsewhere := func(name, addr string, labels map[string]string) npc.Pod {
		return npc.Pod{Namespace: "b", Name: name, UID: "1", Node: "m", Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Labels: labels}
	}
	for _, c := range []struct {
		name   string
		change func(m *Controller)
		wakes  bool
	}{
		{"a label that no policy asks for", func(m *Controller) {
			web.Labels = map[string]string{"run": "2"}
			m.SetPod(web)
		}, false},
		{"nothing", func(m *Controller) { m.SetPod(elsewhere("known", "10.32.2.1", nil)) }, false},
		{"a label of a namespace that no policy asks for", func(m *Controller) {
			m.SetNamespace(npc.Namespace{Name: "b", UID: "b", Labels: map[string]string{"team": "one"}})
		}, false},
		{"a pod that is no policy's peer", func(m *Controller) { m.SetPod(elsewhere("new", "10.32.2.2", nil)) }, false},
		{"a peer", func(m *Controller) { m.SetPod(elsewhere("new", "10.32.2.2", map[string]string{"role": "client"})) }, true},
		{"a pod that becomes a peer", func(m *Controller) { m.SetPod(elsewhere("known", "10.32.2.1", map[string]string{"role": "client"})) }, true},
		{"a pod whose address is not known yet", func(m *Controller) {
			m.SetPod(npc.Pod{Namespace: "a", Name: "new", UID: "1", Node: "n"})
		}, true},
		{"a pod elsewhere with an address of our range", func(m *Controller) { m.SetPod(elsewhere("new", "10.32.1.9", nil)) }, true},
		{"an address that changes hands", func(m *Controller) {
			m.SetPod(npc.Pod{Namespace: "a", Name: "web", UID: "2", Node: "n", Addrs: web.Addrs, HostAddrs: web.HostAddrs})
		}, true},
		{"a pod that vanishes", func(m *Controller) { m.DeletePod("a", "web", "") }, true},
		{"a policy", func(m *Controller) { m.DeletePolicy("a", "p", "") }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			m := atWork(&now)
			m.SetNamespace(npc.Namespace{Name: "b", UID: "b"})
			m.SetPod(elsewhere("known", "10.32.2.1", nil))
			o := &networkingv1.NetworkPolicy{}
			o.Namespace, o.Name, o.UID = "a", "clients", "clients"
			o.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{
				NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "client"}}}}}}
			m.DeletePolicy("a", "p", "")
			m.SetPolicy(o)
			for range 2 {
				m.carryOut(true)
				m.Planner().Resume()
			}
			m.carryOut(true)
			m.Planner().Resume()
			m.Planner().CarriedOut()
			<-m.Wake()

			c.change(m)
			woken := len(m.wake) > 0
			if woken != c.wakes {
				t.Errorf("woken: %v", woken)
			}
			if waits := m.changes.batch != noKind || !m.changes.later.Empty() || !m.changes.changedAt.IsZero(); waits != c.wakes {
				t.Errorf("a change of another kind has to wait, and time passes: %v", waits)
			}
			for _, tx := range m.carryOut(false) {
				if !tx.Empty() && !woken {
					t.Errorf("there is something to do:\n%s", tx)
				}
			}
		})
	}
}
