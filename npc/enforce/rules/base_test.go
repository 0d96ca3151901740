package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/test/golden"
)

// chains renders every chain of a configuration.
func chains(b *Base, f npc.Family) string {
	var out strings.Builder
	chain := func(name string, rules []iptables.Rule) {
		fmt.Fprintf(&out, "%s\n", name)
		for _, r := range rules {
			fmt.Fprintf(&out, "  %s %s # %s\n", r.Match, r.Target, r.Comment)
		}
	}
	chain("forward", b.Forward(f))
	chain("to pods", b.ToPods(f))
	chain("from pods", b.FromPods(f))
	if b.Hooked {
		chain("INPUT", b.ToNode(f))
		chain("to this node", b.Input(f))
	}
	for _, d := range npc.Directions {
		chain(d.String()+" replies", b.Replies(f, d))
		chain(d.String()+" default", b.Default(f, d))
		chain(d.String()+" isolated", b.Isolated(f, d))
		chain(d.String()+" drop", b.Reports(d))
	}
	chain("broadcast", b.Broadcast(f))
	return out.String()
}

// TestBase compares the rules that every node has with testdata/base.txt, for configurations that differ in everything.
func TestBase(t *testing.T) {
	var got strings.Builder
	for _, c := range []struct {
		about string
		base  Base
	}{
		{"by range", Base{Hooked: true, AllowAction: "ACCEPT", NFLogGroup: 86}},
		{"by interface, with uplinks and multicast", Base{Hooked: true, AllowAction: "RETURN", PodInterface: "cni0", BridgePort: "vethwe-bridge",
			Uplinks: []string{"up0"}, AllowMcast: true, Helpers: []string{"ftp", "tftp"}, NFLogGroup: 10}},
		{"not hooked, TCP liberal", Base{AllowAction: "ACCEPT", PodInterface: "weave", BridgePort: "up0", Uplinks: []string{"up0"}, TCPLiberal: true, NFLogGroup: 86}},
	} {
		for _, f := range npc.Families {
			fmt.Fprintf(&got, "== %s, %s\n%s", c.about, f, chains(&c.base, f))
		}
	}
	golden.Compare(t, "testdata/base.txt", got.String())
}
