package controller

import (
	"net/netip"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
)

// closes reports whether the fail-closed filter is to drop packets of a prefix in a direction.
func closes(c *Controller, d npc.Direction, prefix string) bool {
	st := c.state.failClosed.Sets(npc.IPv4)[d].State(ipset.Net(netip.MustParsePrefix(prefix)))
	return st.Wanted && !st.Want.NoMatch
}

// TestBrokenWatchesCloseBothDirections: the watches break a moment apart, and time passes while a plan is made.
func TestBrokenWatchesCloseBothDirections(t *testing.T) {
	now := time.Unix(1000, 0)
	m := New(enforce.Config{NodeName: "n", ForwardJump: true, FailClosed: enforce.FailClosedAuto, PodRanges: []netip.Prefix{netip.MustParsePrefix("10.32.1.0/24")}})
	m.state.now = func() time.Time {
		now = now.Add(100 * time.Microsecond)
		return now
	}
	m.SetSynced()
	o := &networkingv1.NetworkPolicy{}
	o.Namespace, o.Name = "a", "p"
	m.SetPolicy(o)
	m.carryOut(false)
	m.Planner().Resume()
	for _, kind := range []string{"namespaces", "pods", "networkpolicies"} {
		m.SetConnected(kind, false)
	}
	for range 10 {
		m.carryOut(false)
		m.Planner().Resume()
		next := m.Planner().NextChange()
		if next.IsZero() {
			break
		}
		if next.After(now) {
			now = next
		}
	}
	for _, d := range npc.Directions {
		if !closes(m, d, "10.32.1.0/24") {
			t.Errorf("%s is open", d)
		}
	}
	for _, kind := range []string{"namespaces", "pods", "networkpolicies"} {
		m.SetConnected(kind, true)
	}
	m.carryOut(false)
	m.Planner().Resume()
	for _, d := range npc.Directions {
		if closes(m, d, "10.32.1.0/24") {
			t.Errorf("%s is closed", d)
		}
	}
}

// TestADeletedPodsAddressOpensInTime: no pod claims it, and its container has long ended.
func TestADeletedPodsAddressOpensInTime(t *testing.T) {
	now := time.Unix(1000, 0)
	m := atWork(t, &now)
	closed := func() bool { return closes(m, npc.Ingress, "10.32.1.2/32") }
	m.DeletePod("a", "web", "")
	m.carryOut(false)
	m.Planner().Resume()
	if !closed() {
		t.Fatal("it is open at once")
	}
	next := m.Planner().NextChange()
	if want := now.Add(10 * time.Minute); !next.Equal(want) {
		t.Fatalf("the next change is at %s, not at %s", next, want)
	}
	now = next.Add(-time.Second)
	if m.carryOut(false); !closed() {
		t.Error("it is open too early")
	}
	now = next
	if m.carryOut(false); closed() {
		t.Error("it stays closed")
	}
	if next = m.Planner().NextChange(); !next.IsZero() {
		t.Errorf("there is another change at %s", next)
	}
}

// TestWhichBrokenWatchesClose: there may be a pod or a policy that was not reported, but that matters only if there are
// policies.
func TestWhichBrokenWatchesClose(t *testing.T) {
	for name, c := range map[string]struct {
		kinds  []string
		after  time.Duration
		policy bool
		closed bool
	}{
		"pods":              {[]string{"pods"}, 5 * time.Second, true, true},
		"policies":          {[]string{"networkpolicies"}, 5 * time.Second, true, true},
		"both":              {[]string{"pods", "networkpolicies"}, 5 * time.Second, true, true},
		"namespaces":        {[]string{"namespaces"}, time.Hour, true, false},
		"for a moment":      {[]string{"pods", "networkpolicies"}, 5*time.Second - time.Millisecond, true, false},
		"without policies":  {[]string{"pods", "networkpolicies"}, time.Hour, false, false},
		"nothing is broken": {nil, time.Hour, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			m := atWork(t, &now)
			if !c.policy {
				m.DeletePolicy("a", "p", "")
			}
			for _, kind := range c.kinds {
				m.SetConnected(kind, false)
			}
			now = now.Add(c.after)
			m.carryOut(false)
			m.Planner().Resume()
			for _, d := range npc.Directions {
				closed := closes(m, d, "10.32.1.0/24")
				_, why := m.Lookup().Closed(d)
				if closed != c.closed || (why != "") != c.closed {
					t.Errorf("%s: closed: %t, by %q", d, closed, why)
				}
				for range 20 { // each change is a line in the log
					if _, again := m.Lookup().Closed(d); again != why {
						t.Errorf("%s: closed by %q, and then by %q", d, why, again)
					}
				}
			}
		})
	}
}
