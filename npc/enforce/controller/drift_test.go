package controller_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
)

func allKnown() [2]dataplane.Known { return [2]dataplane.Known{} }

// TestDrift shows that changes by other programs in the kernel are found, and repaired once they were read.
func TestDrift(t *testing.T) {
	w := newHarness(t)
	w.Pod("a/web", "10.32.1.2")
	w.Policy("a/p", `{podSelector: {}, ingress: [{}]}`)
	w.Sync()
	kernel := w.Kernels[npc.IPv4]
	found := func() (drift []string) {
		sets, seen := kernel.Read()
		var headers []ipset.Header
		for _, l := range sets {
			headers = append(headers, l.Header)
		}
		drift = append(drift, w.Model.SetDrift(npc.IPv4, headers)...)
		for _, d := range append(w.Model.MemberDrift(npc.IPv4, sets), w.Model.ChainDrift(npc.IPv4, seen)...) {
			if !slices.Contains(drift, d) {
				drift = append(drift, d)
			}
		}
		return drift
	}
	local := kernel.Sets["weave-local-pods"]
	for _, c := range []struct {
		what   string
		change func()
		want   string
	}{
		{"nothing", func() {}, ""},
		{"a member", func() { delete(local.Members, ipset.Addr(netip.MustParseAddr("10.32.1.2"))) },
			"set weave-local-pods (local pods) has 0 members, not 1"},
		{"a chain", func() { kernel.Chains["WEAVE-NPC-INGRESS"] = nil },
			"chain WEAVE-NPC-INGRESS (the way to the rules of isolated pods, ingress) has other rules"},
	} {
		c.change()
		drift := found()
		if c.want == "" && len(drift) > 0 || c.want != "" && (len(drift) != 1 || !strings.HasPrefix(drift[0], c.want)) {
			t.Errorf("after %s was changed found: %q, want %q", c.what, drift, c.want)
		}
		w.Load()
		w.Again(false)
		if drift := found(); len(drift) > 0 {
			t.Errorf("after the repair of %s found: %q", c.what, drift)
		}
	}
}

// TestPostponedNamespace shows that the rules of a namespace stay as they are as long as they are postponed, and those
// of others change.
func TestPostponedNamespace(t *testing.T) {
	w := newHarness(t)
	for _, ns := range []string{"a", "b"} {
		w.Pod(ns+"/web", map[string]string{"a": "10.32.1.2", "b": "10.32.1.3"}[ns])
		w.Policy(ns+"/p", `{podSelector: {}, ingress: [{ports: [{port: 80}]}]}`)
	}
	w.Sync()
	const before = "outside > a/web tcp:80 = yes\n outside > a/web tcp:81 = no\n"
	w.Model.Postpone(npc.IPv4, "a", true)
	for _, ns := range []string{"a", "b"} {
		w.Policy(ns+"/p", `{podSelector: {}, ingress: [{ports: [{port: 81}]}]}`)
	}
	w.Again(false)
	w.Expect(before + "outside > b/web tcp:80 = no\n outside > b/web tcp:81 = yes")
	w.Model.Postpone(npc.IPv4, "a", false)
	w.Loaded = true // none has to announce it: the one who postponed it plans again
	w.Again(false)
	w.Expect("outside > a/web tcp:80 = no\n outside > a/web tcp:81 = yes")
}
