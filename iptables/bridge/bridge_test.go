package bridge_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/iptables/bridge"
	"github.com/weave-npc/weave-npc/test/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Main(m)) }

func nft(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("nft", command).CombinedOutput(); err != nil {
		t.Fatalf("nft %s: %v: %s", command, err, out)
	}
}

// symbolic makes what some versions of nft print in words numbers.
var symbolic = strings.NewReplacer("icmpv6 type nd-router-advert ", "icmpv6 type 134 ", "icmpv6 type nd-redirect ", "icmpv6 type 137 ",
	"icmpv6 type >= destination-unreachable", "icmpv6 type >= 0")

func TestTable(t *testing.T) {
	nft(t, "add table bridge weave; add chain bridge weave prerouting { type filter hook prerouting priority 0; }")
	ruleset := func() string {
		out, err := exec.Command("nft", "--stateless", "--numeric", "list", "ruleset", "bridge").CombinedOutput()
		if err != nil {
			t.Fatalf("nft list ruleset: %v: %s", err, out)
		}
		return string(out)
	}
	foreign := ruleset()
	var g bridge.Table
	expect := func(when string, want []int, wantWhole bool) {
		t.Helper()
		ports, whole, err := g.Ports()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(ports, want) || whole != wantWhole {
			t.Errorf("%s: ports %v (whole: %t), not %v (%t)\n%s", when, ports, whole, want, wantWhole, ruleset())
		}
	}
	guard := func(ports ...int) {
		t.Helper()
		if err := g.Guard(ports); err != nil {
			t.Fatal(err)
		}
	}
	expect("at first", nil, false)
	guard(70001, 70002)
	expect("written", []int{70001, 70002}, true)
	const (
		tagged = `iif @pod-ports counter drop comment "weave-npc: frames with a VLAN tag do not pass ip(6)tables"`
		router = `counter drop comment "weave-npc: only routers send this"`
	)
	rules := []string{
		"ether type 0x8100 " + tagged,
		"ether type 0x88a8 " + tagged,
		"meta l4proto != 58 accept",
		"meta protocol != 0x86dd accept",
		"iif != @pod-ports accept",
		"icmpv6 type 134 " + router,
		"icmpv6 type 137 " + router,
		"icmpv6 type >= 0 accept",
		"frag frag-off != 0 accept",
		`counter drop comment "weave-npc: an ICMPv6 type that cannot be read"`,
	}
	has := func(rules []string) {
		t.Helper()
		want := "type filter hook prerouting priority -400; policy accept;\n\t\t" + strings.Join(rules, "\n\t\t") + "\n\t}"
		if now := symbolic.Replace(ruleset()); !strings.Contains(now, want) {
			t.Errorf("there is no\n%s\nin\n%s", want, now)
		}
	}
	has(rules)
	allowing := bridge.Table{AllowVLAN: true}
	if _, whole, err := allowing.Ports(); whole || err != nil {
		t.Errorf("the rules for tags are not in the way of who allows them: whole is %t, %v", whole, err)
	}
	if err := allowing.Guard([]int{70001}); err != nil {
		t.Fatal(err)
	}
	has(rules[2:])
	expect("tags are allowed", []int{70001}, false)
	guard()
	expect("without a port", nil, true)
	guard(70003)
	expect("another port", []int{70003}, true)

	for name, broken := range map[string]string{
		"a rule inserted":  "insert rule bridge weave-npc prerouting accept",
		"a rule changed":   "flush chain bridge weave-npc prerouting; add rule bridge weave-npc prerouting ether type 8021q drop",
		"the rules gone":   "flush chain bridge weave-npc prerouting",
		"the chain gone":   "flush chain bridge weave-npc prerouting; delete chain bridge weave-npc prerouting",
		"the chain inert":  "flush chain bridge weave-npc prerouting; delete chain bridge weave-npc prerouting; add chain bridge weave-npc prerouting",
		"a port gone":      "flush set bridge weave-npc pod-ports",
		"the ports gone":   "flush chain bridge weave-npc prerouting; delete set bridge weave-npc pod-ports",
		"everything gone":  "delete table bridge weave-npc",
		"another port too": "add element bridge weave-npc pod-ports { 70004 }",
	} {
		nft(t, broken)
		if ports, whole, err := g.Ports(); err != nil || whole && slices.Equal(ports, []int{70003}) {
			t.Errorf("%s: not seen: ports %v, whole: %t, %v", name, ports, whole, err)
		}
		guard(70003)
		expect("after "+name, []int{70003}, true)
	}

	for _, want := range []bool{true, false} {
		if there, err := g.Remove(); there != want || err != nil {
			t.Errorf("removing: it was there: %t, %v; want %t", there, err, want)
		}
	}
	if after := ruleset(); after != foreign {
		t.Errorf("what is not ours was\n%s\nand is\n%s", foreign, after)
	}
}
