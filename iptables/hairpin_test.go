package iptables

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// countedIn sends one UDP packet from each pair's first address to its second, and returns which pairs the rule has
// counted. All addresses are lo's.
func countedIn(t *testing.T, table *Table, rule Rule, pairs [][2]string) []bool {
	t.Helper()
	table.apply(t, Update{
		Replace: []Chain{{Name: "WEAVE-NPC", Tail: []Rule{rule}}},
		Jumps:   []Jump{{Chain: "OUTPUT", Rule: Rule{Match: "-p udp", Target: "-j WEAVE-NPC"}}},
	})
	var matched []bool
	last := uint64(0)
	for _, pair := range pairs {
		from, to := &net.UDPAddr{IP: net.ParseIP(pair[0])}, &net.UDPAddr{IP: net.ParseIP(pair[1]), Port: 9}
		conn, err := net.DialUDP("udp", from, to)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Errorf("sending from %s to %s: %v", pair[0], pair[1], err)
		}
		conn.Close()
		seen := table.read(t).Chains["WEAVE-NPC"]
		if len(seen.Packets) != 1 || seen.IDs[0] != rule.ID() {
			t.Fatalf("the chain is %+v; want one rule, %s", seen, rule.ID())
		}
		matched = append(matched, seen.Packets[0] > last)
		last = seen.Packets[0]
	}
	return matched
}

// addAddresses gives lo all addresses of the pairs.
func addAddresses(t *testing.T, pairs [][2]string) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range pairs {
		for _, text := range pair {
			ip := netip.MustParseAddr(text)
			address := &netlink.Addr{
				IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(ip.BitLen(), ip.BitLen())},
				Flags: unix.IFA_F_NODAD, // usable at once
			}
			if err := netlink.AddrReplace(lo, address); err != nil {
				t.Fatalf("adding %s: %v", text, err)
			}
		}
	}
}

// hairpinOf are the program of a family and pairs of addresses that differ in all ways that matter to it.
func hairpinOf(family Family) (program string, pairs [][2]string) {
	if family == IPv4 {
		return HairpinIPv4, [][2]string{
			{"10.1.2.3", "10.1.2.3"}, {"10.1.2.3", "10.1.2.4"}, {"10.1.2.4", "10.1.2.3"}, {"10.1.2.3", "11.1.2.3"},
			{"203.0.113.7", "203.0.113.7"},
		}
	}
	return HairpinIPv6, [][2]string{
		{"fd00:1:2:3:4:5:6:7", "fd00:1:2:3:4:5:6:7"},
		{"fd00:1:2:3:4:5:6:7", "fd01:1:2:3:4:5:6:7"}, // one word after the other
		{"fd00:1:2:3:4:5:6:7", "fd00:1:3:3:4:5:6:7"},
		{"fd00:1:2:3:4:5:6:7", "fd00:1:2:3:4:6:6:7"},
		{"fd00:1:2:3:4:5:6:7", "fd00:1:2:3:4:5:6:8"},
		{"fd00:1:2:3:4:5:6:8", "fd00:1:2:3:4:5:6:7"},
		{"2001:db8::1", "2001:db8::1"},
	}
}

func TestHairpinMatchesOnlyEqualAddresses(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		program, pairs := hairpinOf(table.family)
		addAddresses(t, pairs)
		rule := Rule{Match: `-m bpf --bytecode "` + program + `"`}
		for i, matched := range countedIn(t, table, rule, pairs) {
			if want := pairs[i][0] == pairs[i][1]; matched != want {
				t.Errorf("%s to %s: matched is %v, want %v", pairs[i][0], pairs[i][1], matched, want)
			}
		}
	})
}

// A pod that reaches itself through a Service is let through; a packet that only has its receiver's address as its
// source is not.
func TestHairpinNeedsDNAT(t *testing.T) {
	onEveryTable(t, func(t *testing.T, table *Table) {
		program, pod, other, service := HairpinIPv4, "10.1.2.3", "10.1.2.4", "10.96.0.1"
		if table.family == IPv6 {
			program, pod, other, service = HairpinIPv6, "fd00::3", "fd00::4", "fd96::1"
		}
		addAddresses(t, [][2]string{{pod, other}, {service, service}})
		table.restore(t, "*nat\n-A OUTPUT -d "+service+" -j DNAT --to-destination "+pod+"\nCOMMIT\n")
		rule := Rule{Match: `-m conntrack --ctstate DNAT -m bpf --bytecode "` + program + `"`}
		pairs := [][2]string{{pod, service}, {other, service}, {pod, pod}, {pod, other}}
		want := []bool{true, false, false, false}
		for i, matched := range countedIn(t, table, rule, pairs) {
			if matched != want[i] {
				t.Errorf("%s: matched is %v, want %v", strings.Join(pairs[i][:], " to "), matched, want[i])
			}
		}
	})
}
