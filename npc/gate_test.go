package npc

import (
	"net/netip"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
)

// TestBrokenWatchesCloseBothDirections: the watches break a moment apart, and time passes while a plan is made.
func TestBrokenWatchesCloseBothDirections(t *testing.T) {
	now := time.Unix(1000, 0)
	m := New(Config{NodeName: "n", Hook: HookForward, Gate: GateAuto, PodRanges: []netip.Prefix{netip.MustParsePrefix("10.32.1.0/24")}})
	m.now = func() time.Time {
		now = now.Add(100 * time.Microsecond)
		return now
	}
	m.SetSynced()
	o := &networkingv1.NetworkPolicy{}
	o.Namespace, o.Name = "a", "p"
	m.SetPolicy(o)
	m.Plan(false)
	for _, kind := range []string{"namespaces", "pods", "networkpolicies"} {
		m.SetConnected(kind, false)
	}
	for range 10 {
		m.Plan(false)
		next := m.NextChange()
		if next.IsZero() {
			break
		}
		if next.After(now) {
			now = next
		}
	}
	for _, d := range directions {
		if len(m.gates.closed[IPv4][d]) == 0 {
			t.Errorf("%s is open", d)
		}
	}
	for _, kind := range []string{"namespaces", "pods", "networkpolicies"} {
		m.SetConnected(kind, true)
	}
	m.Plan(false)
	for _, d := range directions {
		if len(m.gates.closed[IPv4][d]) != 0 {
			t.Errorf("%s is closed", d)
		}
	}
}
