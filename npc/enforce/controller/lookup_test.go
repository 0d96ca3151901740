package controller_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
)

// TestLookup shows the names of a blocked packet's addresses, and the policies that isolate them.
func TestLookup(t *testing.T) {
	w := newHarness(t)
	w.SetPod("a/web", "10.32.1.2", []string{"app=web"}, func(p *npc.Pod) { p.HostAddrs = []netip.Addr{netip.MustParseAddr("172.31.0.1")} })
	w.Remote("a/far", "10.32.2.9", "app=web")
	for _, name := range []string{"in1", "in2", "in3", "in4"} {
		w.Policy("a/"+name, `{podSelector: {matchLabels: {app: web}}}`)
	}
	w.Policy("a/out", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`)
	w.Policy("a/other", `{podSelector: {matchLabels: {app: other}}, policyTypes: [Ingress, Egress]}`)
	w.Sync()
	for _, c := range []struct {
		addr, name string
		in, out    []string
	}{
		{"10.32.1.2", "a/web", []string{"a/in1", "a/in2", "a/in3"}, []string{"a/out"}},
		{"10.32.2.9", "a/far", nil, nil},
		{"172.31.0.1", "node", nil, nil},
		{"198.51.100.7", "", nil, nil},
	} {
		a := netip.MustParseAddr(c.addr)
		if got := w.Model.NameOf(a); got != c.name {
			t.Errorf("%s is %q, not %q", a, got, c.name)
		}
		if got := w.Model.Isolating(a, npc.Ingress); !slices.Equal(got, c.in) {
			t.Errorf("%s: ingress is isolated by %q, not %q", a, got, c.in)
		}
		if got := w.Model.Isolating(a, npc.Egress); !slices.Equal(got, c.out) {
			t.Errorf("%s: egress is isolated by %q, not %q", a, got, c.out)
		}
	}
}
