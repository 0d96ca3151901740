package rules

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

var update = flag.Bool("update", false, "write testdata/base.txt")

// chains renders every chain of a configuration.
func chains(b *Base, f traffic.Family) string {
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
	for _, d := range traffic.Directions {
		if b.RepliesApart() {
			chain(d.String()+" replies", b.Replies(f, d))
		}
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
			Uplinks: []string{"up0"}, AllowMcast: true, NFLogGroup: 10}},
		{"not hooked, TCP liberal", Base{AllowAction: "ACCEPT", PodInterface: "weave", BridgePort: "up0", Uplinks: []string{"up0"}, TCPLiberal: true, NFLogGroup: 86}},
	} {
		for _, f := range traffic.Families {
			fmt.Fprintf(&got, "== %s, %s\n%s", c.about, f, chains(&c.base, f))
		}
	}
	const golden = "testdata/base.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("the rules have changed; if they should, run go test ./npc/rules -update (-want +got):\n%s", diff)
	}
}
