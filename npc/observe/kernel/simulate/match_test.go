package simulate_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// set is a set as the kernel's are read.
func set(name string, kind ipset.Type, members ...ipset.Element) ipset.Listing {
	return ipset.Listing{Header: ipset.Header{Set: ipset.Set{Name: name, Type: kind, Family: ipset.IPv4}}, Members: members}
}

// TestMatches sends a packet that a rule matches, and one that differs from it in what the rule looks at.
func TestMatches(t *testing.T) {
	sets := []ipset.Listing{
		set("addrs", ipset.HashIP, ipset.Element{Entry: ipset.Addr(addr("10.32.1.2"))}),
		set("ports", ipset.HashIPPort, ipset.Element{Entry: ipset.AddrPort(addr("10.32.1.2"), 6, 80)}),
		set("nets", ipset.HashNet, ipset.Element{Entry: ipset.Net(netip.MustParsePrefix("10.32.0.0/16"))},
			ipset.Element{Entry: ipset.Net(netip.MustParsePrefix("10.32.9.0/24")), Attr: ipset.Attr{NoMatch: true}}),
		set("lists", ipset.ListSet, ipset.Element{Entry: ipset.Member("addrs")}),
	}
	base := simulate.Packet{Src: addr("10.32.1.3"), Dst: addr("10.32.1.2"), Protocol: 6, SrcPort: 4000, DstPort: 80, In: "cni0", Out: "eth0",
		PhysIn: "veth1", PhysOut: "veth2", ICMPType: 136, HopLimit: 255, Helper: "ftp", Quoted: addr("10.32.1.3"), Broadcast: true, ToAll: true}
	for _, c := range []struct {
		rule    string
		without func(*simulate.Packet)
	}{
		{"-p tcp", func(p *simulate.Packet) { p.Protocol = 17 }},
		{"-p 6", func(p *simulate.Packet) { p.Protocol = 17 }},
		{"-s 10.32.1.3/32", func(p *simulate.Packet) { p.Src = addr("10.32.1.4") }},
		{"-d 10.32.1.0/24", func(p *simulate.Packet) { p.Dst = addr("10.32.2.2") }},
		{"-o eth+", func(p *simulate.Packet) { p.Out = "cni0" }},
		{"-p tcp -m tcp --sport 4000", func(p *simulate.Packet) { p.SrcPort = 4001 }},
		{"-p tcp -m tcp --dport 79:80", func(p *simulate.Packet) { p.DstPort = 81 }},
		{"-p tcp -m multiport --dports 22,80:90", func(p *simulate.Packet) { p.DstPort = 23 }},
		{"-m conntrack --ctstate NEW,INVALID", func(p *simulate.Packet) { p.State = "ESTABLISHED" }},
		{"-m conntrack ! --ctstate DNAT", func(p *simulate.Packet) { p.DNAT = true }},
		{"-m icmp6 --icmpv6-type 136", func(p *simulate.Packet) { p.ICMPType = 135 }},
		{"-m hl --hl-eq 255", func(p *simulate.Packet) { p.HopLimit = 64 }},
		{"-m physdev --physdev-is-bridged", func(p *simulate.Packet) { p.PhysOut = "" }},
		{"-m physdev --physdev-in veth1", func(p *simulate.Packet) { p.PhysIn = "veth3" }},
		{"-m physdev --physdev-out veth2", func(p *simulate.Packet) { p.PhysOut = "veth3" }},
		{"-m addrtype --dst-type BROADCAST", func(p *simulate.Packet) { p.Broadcast = false }},
		{"-m pkttype --pkt-type broadcast", func(p *simulate.Packet) { p.ToAll = false }},
		{"-m pkttype ! --pkt-type unicast", func(p *simulate.Packet) { p.ToAll = false }},
		{"-m pkttype ! --pkt-type multicast", func(p *simulate.Packet) { p.ToAll, p.ToGroup = false, true }},
		{`-m bpf ! --bytecode "` + iptables.HairpinIPv4 + `"`, func(p *simulate.Packet) { p.Src = p.Dst }},
		{`-m bpf --bytecode "` + iptables.OwnErrorIPv4 + `"`, func(p *simulate.Packet) { p.Quoted = p.Dst }},
		{"-m helper --helper ftp", func(p *simulate.Packet) { p.Helper = "tftp" }},
		{"-m set --match-set addrs dst", func(p *simulate.Packet) { p.Dst = addr("10.32.1.9") }},
		{"-m set --match-set ports dst,dst", func(p *simulate.Packet) { p.DstPort = 81 }},
		{"-m set --match-set nets src", func(p *simulate.Packet) { p.Src = addr("10.32.9.9") }},
		{"-m set --match-set nets src", func(p *simulate.Packet) { p.Src = addr("10.33.1.1") }},
		{"-m set --match-set lists dst", func(p *simulate.Packet) { p.Dst = addr("10.32.1.9") }},
		{"-m set ! --match-set absent dst -m set --match-set addrs dst", func(p *simulate.Packet) { p.Dst = addr("10.32.1.9") }},
		{`-m comment --comment "any packet" -p tcp`, func(p *simulate.Packet) { p.Protocol = 1 }},
	} {
		table := simulate.Read(seen("ACCEPT", "-A FORWARD "+c.rule+" -j DROP"), sets)
		other := base
		c.without(&other)
		for want, p := range map[bool]simulate.Packet{true: base, false: other} {
			if v, err := table.Simulate(p); err != nil || v.Accepted == want || len(v.PassedOver) > 0 {
				t.Errorf("%s: it matches: %t, not %t; %+v, %v", c.rule, !v.Accepted, want, v, err)
			}
		}
	}
}

// TestTrace shows the path of a packet: the rules that it met, where it was logged and what decided.
func TestTrace(t *testing.T) {
	table := simulate.Read(seen("DROP", "-A FORWARD -j WEAVE-NPC", "-A FORWARD -j ACCEPT", "-A WEAVE-NPC -p udp -j DROP", "-A WEAVE-NPC -j WEAVE-NPC-A",
		"-A WEAVE-NPC -j NFLOG --nflog-group 86", "-A WEAVE-NPC -j MARK --set-xmark 0x1/0x1", "-A WEAVE-NPC -g WEAVE-NPC-B",
		"-A WEAVE-NPC -j DROP", "-A WEAVE-NPC-A -j RETURN", "-A WEAVE-NPC-A -j DROP", "-A WEAVE-NPC-B -p udp -j DROP"), nil)
	for range 2 { // a table may be asked again
		v, err := table.Simulate(simulate.Packet{Src: addr("10.32.1.3"), Dst: addr("10.32.1.2"), Protocol: 6})
		if err != nil {
			t.Fatal(err)
		}
		var met []string
		for _, s := range v.Trace {
			met = append(met, s.Chain+" "+s.Rule)
		}
		want := "FORWARD -j WEAVE-NPC; WEAVE-NPC -j WEAVE-NPC-A; WEAVE-NPC-A -j RETURN; WEAVE-NPC -j NFLOG --nflog-group 86; " +
			"WEAVE-NPC -j MARK --set-xmark 0x1/0x1; WEAVE-NPC -g WEAVE-NPC-B; FORWARD -j ACCEPT"
		if got := strings.Join(met, "; "); got != want {
			t.Errorf("it met %s\nwant   %s", got, want)
		}
		if !v.Accepted || v.By != "FORWARD -j ACCEPT" || v.Logged != 86 || v.Trace[len(v.Trace)-1].Tried != 9 {
			t.Errorf("%+v", v)
		}
	}
}

// TestStrict shows which rules a table that is not lenient refuses to evaluate.
func TestStrict(t *testing.T) {
	for rule, want := range map[string]string{
		"-m u32 --u32 0=0 -j DROP":    `cannot read "--u32"`,
		"-p all -j DROP":              `protocol "all" is not known`,
		"-p 256 -j DROP":              `protocol "256" is not known`,
		"! -m comment -j DROP":        `cannot read an exclamation mark before "-m"`,
		"-j":                          `cannot read "-j"`,
		"-j NFLOG --nflog-group five": "invalid syntax",
		"-s 10.0.0.0/33 -j DROP":      "prefix length out of range",
		`-m comment --comment "-j`:    "-m comment",
		"-j FORWARD":                  "a loop",
	} {
		table := simulate.Table{Chains: map[string][]string{"FORWARD": {rule}}}
		if _, err := table.Simulate(simulate.Packet{}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "FORWARD") {
			t.Errorf("%s: %v, want %s", rule, err, want)
		}
	}
}
