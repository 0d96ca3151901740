package controller_test

import (
	"net/netip"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/test/cluster"
)

func TestUnknownRange(t *testing.T) {
	w := cluster.NewUnsynced(t, func(c *enforce.Config) { c.PodInterface, c.PodRanges = "", nil })
	rangeless := func(want bool) {
		t.Helper()
		if w.Model.NoPodRange() != want {
			t.Errorf("a range is unknown: %t", !want)
		}
	}
	w.Model.SetSynced()
	rangeless(false)
	w.Pod("a/web", "10.32.1.2")
	rangeless(true)
	w.Model.SetRanges([]netip.Prefix{netip.MustParsePrefix("10.32.1.0/24")})
	rangeless(false)
}

func TestNames(t *testing.T) {
	w := newHarness(t)
	w.Namespace("a")
	w.SetPod("a/web", "10.32.1.2", []string{"app=web"}, func(p *npc.Pod) { p.HostAddrs = []netip.Addr{netip.MustParseAddr("172.31.0.1")} })
	w.Policy("a/p", `{podSelector: {}}`)
	w.Sync()
	for addr, want := range map[string]string{"10.32.1.2": "a/web", "172.31.0.1": "node", "9.9.9.9": ""} {
		if got := w.Model.NameOf(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s is %q, not %q", addr, got, want)
		}
	}
	if got := w.Model.Isolating(netip.MustParseAddr("10.32.1.2"), npc.Ingress); len(got) != 1 || got[0] != "a/p" {
		t.Errorf("isolating: %v", got)
	}
	if got := w.Model.Isolating(netip.MustParseAddr("9.9.9.9"), npc.Ingress); got != nil {
		t.Errorf("isolating no pod: %v", got)
	}
}
