package controller_test

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
)

// TestFailClosedFilterOfAnInterface shows what is dropped where pods are identified by their interface, and what is known to be no
// pod's.
func TestFailClosedFilterOfAnInterface(t *testing.T) {
	for name, test := range map[string]func(*testing.T, starter){
		"S59_the_interface_counts_and_not_the_nodes_range": interfaceCounts,
		"S58_what_is_behind_an_uplink_is_no_pod":           uplinkIsNoPod,
		"S58_DHCP_passes_S56_and_multicast":                dhcpPasses,
		"S115_closed_while_weave_npc_does_not_run":         unattendedIsClosed,
		"addresses_that_no_object_lists":                   unlistedIsClosed,
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

// unattendedIsClosed: known pods keep what they have while weave-npc does not run, and unknown addresses are closed.
func unattendedIsClosed(t *testing.T, start starter) {
	for _, byInterface := range []bool{true, false} {
		w := start(t, func(c *enforce.Config) {
			if !byInterface { // the range of the whole cluster
				c.PodInterface, c.PodRanges = "", []netip.Prefix{netip.MustParsePrefix("10.32.0.0/16"), netip.MustParsePrefix("fd32::/16")}
			}
		})
		w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
		w.Pod("a/free", "10.32.1.6,fd32:1::6")
		w.Remote("a/far", "10.32.2.9,fd32:2::9")
		w.Sync()
		known := "a/free > outside tcp:80 = yes\n outside > a/free tcp:80 = yes\n"
		if !byInterface { // else other nodes' pods are not behind it
			known += "a/free > a/far tcp:80 = yes\n a/far > a/free tcp:80 = yes\n"
		}
		expect := func(web, unknown string) {
			t.Helper()
			w.Expect(known + "outside > a/web tcp:80 = " + web + "\n a/free > a/web tcp:80 = " + web + "\n unknown > outside tcp:80 = " + unknown +
				"\n outside > unknown tcp:80 = " + unknown + "\n unknown > a/far tcp:80 = " + unknown + "\n unknown > a/free tcp:80 = " + unknown)
		}
		die := func() {
			for _, f := range npc.Families {
				clear(w.Kernels[f].Sets[naming.FixedSet(f, naming.Alive)].Members) // as they expire
			}
		}
		die()
		expect("yes", "yes")
		w.Policy("a/p", `{podSelector: {matchLabels: {app: web}}}`)
		w.Again(false)
		for _, f := range npc.Families { // as another goroutine of weave-npc does
			for _, e := range w.Model.Alive(f).Elements {
				w.Kernels[f].Sets[naming.FixedSet(f, naming.Alive)].Members[e.Entry] = e.Attr
			}
		}
		expect("no", "yes")
		die()
		expect("no", "no")
		w.DeletePolicy("a/p")
		w.Again(false)
		die()
		expect("yes", "yes")
	}
}

// unlistedIsClosed: in the directions that the pod is isolated in, until its object lists the address.
func unlistedIsClosed(t *testing.T, start starter) {
	w := start(t)
	w.Addr("six", "fd32:1::5")
	w.Addr("free", "fd32:1::6")
	w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: [{ports: [{port: 81}]}]}`)
	w.Pod("a/web", "10.32.1.5", "app=web")
	w.Pod("a/free", "10.32.1.6")
	w.Sync()
	w.Expect("outside > six tcp:80 = yes\n six > outside tcp:80 = yes")
	w.Model.SetUnlisted(map[netip.Addr]types.UID{
		netip.MustParseAddr("fd32:1::5"): w.Pods["a/web"].UID, netip.MustParseAddr("fd32:1::6"): w.Pods["a/free"].UID})
	w.Again(false)
	w.Expect("outside > six tcp:80 = no\n outside > six tcp:81 = no\n six > outside tcp:80 = yes\n outside > free tcp:80 = yes\n free > outside tcp:80 = yes")
	w.ClusterPolicy("c", `{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{networks: [198.51.100.0/24, "2001:db8::/32"]}]}]}`)
	w.Again(false)
	w.Expect("outside > six tcp:80 = no\n six > outside tcp:80 = no\n outside > free tcp:80 = yes\n free > outside tcp:80 = no")
	if got := w.Model.Unlisted(); len(got) != 2 || got[0] != "fd32:1::5 of a/web" {
		t.Errorf("reported: %q", got)
	}
	w.Pod("a/web", "10.32.1.5,fd32:1::5", "app=web")
	w.Again(false)
	w.Expect("outside > a/web tcp:80 = no\n outside > a/web tcp:81 = yes\n six > outside tcp:80 = no")
	w.Model.SetUnlisted(nil)
	w.Again(false)
	w.Expect("free > outside tcp:80 = yes")
}
