package ports_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/iptables/ports"
	"github.com/weave-npc/weave-npc/test/golden"
	"github.com/weave-npc/weave-npc/test/sandbox"
)

// tables are those of the network namespace of a test.
var tables ports.Tables

func TestMain(m *testing.M) { os.Exit(sandbox.Main(m)) }

func nft(t testing.TB, command string) string {
	t.Helper()
	out, err := exec.Command("nft", command).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %s: %v: %s", command, err, out)
	}
	return string(out)
}

// symbolic makes what some versions of nft print in words numbers.
var symbolic = strings.NewReplacer("icmpv6 type nd-router-advert ", "icmpv6 type 134 ", "icmpv6 type nd-redirect ", "icmpv6 type 137 ",
	"icmpv6 type >= destination-unreachable", "icmpv6 type >= 0", "icmpv6 taddr", "@th,64,128")

func ruleset(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("nft", "--stateless", "--numeric", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("nft list ruleset: %v: %s", err, out)
	}
	return symbolic.Replace(string(out))
}

// pods returns a state with n pods, every tenth of them not on a bridge.
func pods(mode ports.Mode, n int) ports.State {
	s := ports.State{Mode: mode, Exempt: []int{1, 2, 70000}, Sources: map[ports.Source]string{},
		Reserved: []netip.Addr{netip.MustParseAddr("fd00:96::10"), netip.MustParseAddr("10.96.0.10")}}
	for i := range n {
		port, mac := 70001+i, ports.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}
		if i%10 == 9 {
			s.Routed, mac = append(s.Routed, port), ports.MAC{}
		} else {
			s.Bridged = append(s.Bridged, port)
		}
		s.Bound = append(s.Bound, port)
		for _, a := range []string{fmt.Sprintf("10.32.%d.%d", i>>8, i&255), fmt.Sprintf("fd00::%x", i+1), fmt.Sprintf("fe80::%x", i+1)} {
			s.Sources[ports.Source{Port: port, MAC: mac, Addr: netip.MustParseAddr(a)}] = fmt.Sprintf("shop/web-%d", i)
		}
	}
	return s
}

func write(t testing.TB, want ports.State) {
	t.Helper()
	have, whole, err := tables.Read()
	if err != nil {
		t.Fatal(err)
	}
	if err := tables.Write(have, want, whole); err != nil {
		t.Fatal(err)
	}
}

func holds(t testing.TB, when string, want ports.State, wantWhole bool) {
	t.Helper()
	have, whole, err := tables.Read()
	if err != nil {
		t.Fatal(err)
	}
	if whole != wantWhole || wantWhole && !have.Equal(want) {
		t.Errorf("%s: %+v (whole: %t), want %+v (%t)\n%s", when, have, whole, want, wantWhole, ruleset(t))
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	nft(t, "add table bridge weave; add chain bridge weave prerouting { type filter hook prerouting priority 0; }")
	if _, err := tables.Remove(); err != nil {
		t.Fatal(err)
	}
	foreign := ruleset(t)
	holds(t, "at first", ports.State{}, false)
	for _, n := range []int{0, 3, 12, 1000} {
		for _, mode := range []ports.Mode{ports.Off, ports.Audit, ports.On} {
			for _, vlan := range []bool{false, true} {
				for _, types := range [][]uint16{nil, {}, {0x888e, 0x88cc}} {
					want := pods(mode, n)
					want.AllowVLAN, want.OnlyTypes, want.Types = vlan, types != nil, types
					write(t, want)
					holds(t, fmt.Sprint(mode, n, vlan, types), want, true)
				}
			}
		}
	}
	for _, want := range []int{2, 0} {
		if removed, err := tables.Remove(); len(removed) != want || err != nil {
			t.Errorf("removed: %q, %v; want %d", removed, err, want)
		}
	}
	if after := ruleset(t); after != foreign {
		t.Errorf("what is not ours was\n%s\nand is\n%s", foreign, after)
	}
	nft(t, "delete table bridge weave")
}

// TestRules has the chains as nft lists them. nft leaves out comparisons that others imply.
func TestRules(t *testing.T) {
	var text strings.Builder
	for _, s := range []ports.State{
		{Mode: ports.Off}, {Mode: ports.Audit, AllowVLAN: true},
		{Mode: ports.On, OnlyTypes: true, Types: []uint16{0x888e}, Routed: []int{70009}},
	} {
		write(t, s)
		fmt.Fprintf(&text, "# %+v\n", s)
		inChain := false
		for line := range strings.Lines(ruleset(t)) {
			inChain = line != "\t}\n" && (inChain || strings.HasPrefix(line, "\tchain "))
			if inChain || strings.HasPrefix(line, "table") {
				text.WriteString(line)
			}
		}
	}
	golden.Compare(t, "testdata/rules.txt", text.String())
}

// TestElementsChangeAlone checks that rules stay in the kernel while elements change.
func TestElementsChangeAlone(t *testing.T) {
	s := pods(ports.On, 1000)
	write(t, s)
	before := handles(t)
	pod := ports.Source{Port: 70001, MAC: ports.MAC{2}, Addr: netip.MustParseAddr("10.32.0.0")}
	for name, change := range map[string]func(*ports.State){
		"another pod's": func(s *ports.State) { s.Sources[pod] = "shop/other" },
		"no address":    func(s *ports.State) { delete(s.Sources, pod) },
		"a port less":   func(s *ports.State) { s.Bridged, s.Bound = s.Bridged[1:], s.Bound[1:] },
		"exempt":        func(s *ports.State) { s.Exempt = append(s.Exempt, 70003) },
		"reserved":      func(s *ports.State) { s.Reserved = append(s.Reserved[:1], netip.MustParseAddr("10.96.0.11")) },
		"not bound":     func(s *ports.State) { s.Bound = s.Bound[:1] },
		"all others'": func(s *ports.State) {
			for source := range s.Sources {
				s.Sources[source] = "ops/other"
			}
		},
		"none":        func(s *ports.State) { s.Sources, s.Bridged, s.Bound, s.Exempt = nil, nil, nil, nil },
		"a long name": func(s *ports.State) { s.Sources[pod] = "shop/" + strings.Repeat("long", 70) },
	} {
		next := pods(ports.On, 1000)
		change(&next)
		if next.Equal(s) {
			t.Errorf("%s: the states are equal", name)
		}
		write(t, next)
		holds(t, name, next, true)
		write(t, s)
		holds(t, "after "+name, s, true)
	}
	if after := handles(t); after != before {
		t.Errorf("the chains were\n%s\nand are\n%s", before, after)
	}
	s.Mode = ports.Audit
	write(t, s)
	if handles(t) == before {
		t.Error("the chains stay in another mode: nothing is tested here")
	}
}

// handles returns the numbers that the kernel has given to tables, chains and rules.
func handles(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("nft", "--handle", "--stateless", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("nft list ruleset: %v: %s", err, out)
	}
	var text strings.Builder
	for line := range strings.Lines(string(out)) {
		if at := strings.LastIndex(line, " # handle "); at >= 0 {
			text.WriteString(line[at:])
		}
	}
	return text.String()
}

// TestTamperingIsSeen changes the tables in many ways.
func TestTamperingIsSeen(t *testing.T) {
	s := pods(ports.On, 10)
	s.OnlyTypes = true
	write(t, s)
	for name, command := range tampering() {
		nft(t, command)
		have, whole, err := tables.Read()
		if err != nil {
			t.Fatal(err)
		}
		if whole && have.Equal(s) {
			t.Errorf("%s: not seen\n%s", name, ruleset(t))
		}
		if err := tables.Write(have, s, whole); err != nil {
			t.Fatal(err)
		}
		holds(t, "after "+name, s, true)
	}
}

// tampering returns commands of nft that change the tables.
func tampering() map[string]string {
	all := map[string]string{
		"a chain at the hook": "add chain bridge weave-npc first { type filter hook prerouting priority -500; }",
		"another chain":       "add chain inet weave-npc more",
		"another set":         "add set bridge weave-npc more { type ipv4_addr; }",
		"dormant":             "add table bridge weave-npc { flags dormant; }",
		"dormant, inet":       "add table inet weave-npc { flags dormant; }",
		"another policy":      "add chain bridge weave-npc prerouting { policy drop; }",
		"everything gone":     "delete table bridge weave-npc",
		"everything gone too": "delete table inet weave-npc",
		"the hook gone": "flush chain inet weave-npc prerouting; delete chain inet weave-npc prerouting; " +
			"add chain inet weave-npc prerouting",
		"another hook": "flush chain bridge weave-npc prerouting; delete chain bridge weave-npc prerouting; " +
			"add chain bridge weave-npc prerouting { type filter hook prerouting priority 0; }",
		"another pod":   "delete element inet weave-npc sources4 { 70010 . 10.32.0.9 }; add element inet weave-npc sources4 { 70010 . 10.32.0.9 comment \"ops/x\" }",
		"another key":   "add element bridge weave-npc sources4 { 70001 . 02:00:00:00:00:00 . 10.32.0.77 }",
		"a port gone":   "flush set inet weave-npc pod-ports",
		"exempt in one": "add element inet weave-npc exempt-ports { 70010 }",
		"free again":    "delete element bridge weave-npc bound4 { 10.32.0.9 }",
		"another MAC":   "add element bridge weave-npc port-macs { 70001 . 02:00:00:00:00:09 }",
		"another type":  "add element bridge weave-npc types { 0x888e }",
		"a rule changed": "flush chain bridge weave-npc joining; " +
			"add rule bridge weave-npc joining accept",
		"a set of another kind": "flush chain bridge weave-npc forged; delete set bridge weave-npc forged-macs; " +
			"add set bridge weave-npc forged-macs { type iface_index . ether_addr; size 4; flags dynamic,timeout; timeout 1m; }",
	}
	chains := map[string][]string{"bridge": {"prerouting", "router-only", "sources", "bound", "neighbours", "joining", "forged"},
		"inet": {"prerouting", "sources", "bound", "joining", "forged"}}
	for family, names := range chains {
		for _, c := range names {
			all["rule inserted: "+family+c] = fmt.Sprintf("insert rule %s weave-npc %s accept", family, c)
			all["rule added: "+family+c] = fmt.Sprintf("add rule %s weave-npc %s accept", family, c)
			all["no rules: "+family+c] = fmt.Sprintf("flush chain %s weave-npc %s", family, c)
		}
		for _, set := range []string{"pod-ports", "exempt-ports", "bound-ports", "sources4", "sources6", "bound4", "bound6",
			"reserved4", "reserved6"} {
			all["set emptied: "+family+set] = fmt.Sprintf("flush set %s weave-npc %s", family, set)
		}
	}
	return all
}
