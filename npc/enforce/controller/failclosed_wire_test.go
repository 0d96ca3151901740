package controller_test

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
)

// TestFailClosedFilterOfAnInterface shows what is dropped where pods are identified by their interface, and what is known to be no
// pod's.
func TestFailClosedFilterOfAnInterface(t *testing.T) {
	for name, test := range map[string]func(*testing.T, starter){
		"S59_the_interface_counts_and_not_the_nodes_range": interfaceCounts,
		"S58_what_is_behind_an_uplink_is_no_pod":           uplinkIsNoPod,
		"S58_DHCP_passes_S56_and_multicast":                dhcpPasses,
	} {
		t.Run(name, func(t *testing.T) {
			onEveryKernel(t, func(t *testing.T, fresh starter) {
				test(t, func(t *testing.T, configure ...func(*enforce.Config)) *harness {
					w := fresh(t, configure...)
					w.Namespace("a")
					w.Addr("unknown", "10.32.1.77", "fd32:1::77")
					return w
				})
			})
		})
	}
}

func interfaceCounts(t *testing.T, start starter) {
	w := start(t, func(c *enforce.Config) { c.PodRanges = []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")} })
	w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`)
	w.Pod("a/free", "10.32.1.6,fd32:1::6")
	w.SetPod("a/new", "", []string{"app=web"}, nil)
	w.Sync()
	w.Expect("outside > unknown tcp:80 = no\n unknown > outside tcp:80 = no\n outside > a/free tcp:80 = yes\n a/free > outside tcp:80 = yes")
	w.Pod("a/new", "10.32.1.5,fd32:1::5", "app=web")
	w.Again(false)
	w.Expect("outside > unknown tcp:80 = yes\n outside > a/new tcp:80 = no")
}

func uplinkIsNoPod(t *testing.T, start starter) {
	w := start(t, func(c *enforce.Config) { c.FailClosed = enforce.FailClosedAlways })
	w.Remote("a/far", "10.32.1.9,fd32:1::9")
	w.Pod("a/free", "10.32.1.6,fd32:1::6")
	w.Sync()
	behind := func(want bool, ports ...string) {
		t.Helper()
		prefixes := func(texts ...string) (out []netip.Prefix) {
			for _, text := range texts {
				out = append(out, netip.MustParsePrefix(text))
			}
			return out
		}
		w.Model.SetUplinks(ports, prefixes("0.0.0.0/0", "10.32.1.8/32", "fd32:1::8/128"), prefixes("10.32.1.0/24", "fd32:1::/64"))
		w.Again(true)
		for _, ends := range [][2]string{{"10.32.1.6", "10.32.1.8"}, {"fd32:1::6", "fd32:1::8"}, {"10.32.1.6", "203.0.113.1"}} {
			src, dst := netip.MustParseAddr(ends[0]), netip.MustParseAddr(ends[1])
			for what, p := range map[string]simulate.Packet{
				"bridged to":   {Src: src, Dst: dst, In: "cni0", Out: "cni0", PhysIn: "veth1", PhysOut: "up0"},
				"routed to":    {Src: src, Dst: dst, In: "eth0", Out: "cni0"},
				"bridged from": {Src: dst, Dst: src, In: "cni0", Out: "cni0", PhysIn: "up0", PhysOut: "veth1"},
				"routed from":  {Src: dst, Dst: src, In: "cni0", Out: "eth0", PhysIn: "up0"},
			} {
				p.Protocol, p.DstPort = unix.IPPROTO_TCP, 80
				if v := w.Evaluate(p); v.Accepted != want {
					t.Errorf("uplinks %q, %s %s: accepted = %t, by %q", ports, what, dst, v.Accepted, v.By)
				}
			}
			p := simulate.Packet{Src: src, Dst: dst, In: "cni0", Out: "cni0", PhysIn: "veth1", PhysOut: "veth2", Protocol: unix.IPPROTO_TCP, DstPort: 80}
			if v := w.Evaluate(p); v.Accepted {
				t.Errorf("uplinks %q, to %s at a pod's port: accepted by %q", ports, dst, v.By)
			}
		}
		w.Expect(fmt.Sprintf("outside > a/far tcp:80 = %s\n outside > 10.32.1.10 tcp:80 = no\n outside > fd32:1::10 tcp:80 = no",
			map[bool]string{true: "yes", false: "no"}[want]))
	}
	behind(false)
	behind(true, "up0")
	behind(true, "other0", "up0")
	behind(false)
}

func dhcpPasses(t *testing.T, start starter) {
	for _, multicast := range []bool{true, false} {
		w := start(t, func(c *enforce.Config) { c.FailClosed, c.AllowMcast = enforce.FailClosedAlways, multicast })
		w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`)
		w.Pod("a/web", "10.32.1.5,fd32:1::5", "app=web")
		w.Pod("a/free", "10.32.1.6,fd32:1::6")
		w.Sync()
		for _, c := range []struct {
			src, dst     string
			sport, dport uint16
			accepted     bool
		}{
			{"0.0.0.0", "255.255.255.255", 68, 67, true},
			{"10.32.1.5", "255.255.255.255", 68, 67, true},
			{"10.32.1.77", "10.32.1.78", 67, 68, true},
			{"10.32.1.6", "10.32.1.5", 67, 68, true},
			{"10.32.1.77", "255.255.255.255", 67, 68, true},
			{"10.32.1.77", "10.32.1.78", 68, 67, true},
			{"10.32.1.5", "10.32.1.6", 68, 67, false},
			{"10.32.1.5", "10.32.1.6", 67, 68, false},
			{"10.32.1.6", "10.32.1.5", 68, 67, false},
			{"0.0.0.0", "255.255.255.255", 68, 69, false},
			{"0.0.0.0", "255.255.255.255", 1068, 67, false},
			{"fe80::1", "ff02::1:2", 546, 547, true},
			{"fe80::2", "fe80::1", 547, 546, true},
			{"fe80::1", "fe80::2", 546, 547, false},
			{"fe80::2", "fe80::1", 1547, 546, false},
			{"10.32.1.6", "224.0.0.251", 5353, 5353, multicast},
			{"fd32:1::6", "ff02::fb", 5353, 5353, multicast},
		} {
			p := simulate.Packet{Src: netip.MustParseAddr(c.src), Dst: netip.MustParseAddr(c.dst), Protocol: unix.IPPROTO_UDP, SrcPort: c.sport,
				DstPort: c.dport, In: "cni0", Out: "cni0", PhysIn: "veth1", PhysOut: "veth2"}
			if v := w.Evaluate(p); v.Accepted != c.accepted {
				t.Errorf("%s:%d > %s:%d, multicast %t: accepted = %t, by %q", c.src, c.sport, c.dst, c.dport, multicast, v.Accepted, v.By)
			}
		}
	}
}
