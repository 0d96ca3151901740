package controller

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// atWork is a model whose kernels are in the desired state: a policy isolates a pod.
func atWork(t testing.TB, now *time.Time) *Controller {
	m := New(enforce.Config{NodeName: "n", ForwardJump: true, FailClosed: enforce.FailClosedAuto, MaxListSize: 1024,
		PodRanges: []netip.Prefix{netip.MustParsePrefix("10.32.1.0/24")}})
	m.state.now = func() time.Time { return *now }
	m.SetNamespace(fixture.Namespace("a"))
	m.SetPod(fixture.Pod("a/web n@172.31.0.1 10.32.1.2"))
	m.SetPolicy(fixture.Policy(t, "a/p", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}, {podSelector: {}},
		{ipBlock: {cidr: 10.0.0.0/8}}]}]}`))
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
	m := atWork(t, &now)
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
	const web = "a/web n@172.31.0.1 10.32.1.2"
	for _, c := range []struct {
		name   string
		change func(m *Controller)
		wakes  bool
	}{
		{"a label that no policy asks for", func(m *Controller) {
			m.SetPod(fixture.Pod(web + " run=2"))
		}, false},
		{"nothing", func(m *Controller) { m.SetPod(fixture.Pod("b/known m 10.32.2.1")) }, false},
		{"a label of a namespace that no policy asks for", func(m *Controller) {
			m.SetNamespace(fixture.Namespace("b team=one"))
		}, false},
		{"a pod that is no policy's peer", func(m *Controller) { m.SetPod(fixture.Pod("b/new m 10.32.2.2")) }, false},
		{"a peer", func(m *Controller) { m.SetPod(fixture.Pod("b/new m 10.32.2.2 role=client")) }, true},
		{"a pod that becomes a peer", func(m *Controller) { m.SetPod(fixture.Pod("b/known m 10.32.2.1 role=client")) }, true},
		{"a pod whose address is not known yet", func(m *Controller) {
			m.SetPod(fixture.Pod("a/new n"))
		}, true},
		{"a pod elsewhere with an address of our range", func(m *Controller) { m.SetPod(fixture.Pod("b/new m 10.32.1.9")) }, true},
		{"an address that changes hands", func(m *Controller) {
			p := fixture.Pod(web)
			p.UID = "another"
			m.SetPod(p)
		}, true},
		{"a pod that vanishes", func(m *Controller) { m.DeletePod("a", "web", "") }, true},
		{"a policy", func(m *Controller) { m.DeletePolicy("a", "p", "") }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			m := atWork(t, &now)
			m.SetNamespace(fixture.Namespace("b"))
			m.SetPod(fixture.Pod("b/known m 10.32.2.1"))
			m.DeletePolicy("a", "p", "")
			m.SetPolicy(fixture.Policy(t, "a/clients", `{podSelector: {},
				ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {role: client}}}]}]}`))
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
