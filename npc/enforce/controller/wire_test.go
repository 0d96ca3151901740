package controller_test

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
)

// TestWire shows the verdicts on packets that do more than open a connection.
func TestWire(t *testing.T) {
	const (
		web    = "a/web"
		client = "a/client"
	)
	icmp6 := func(kind, hops uint8) func(*simulate.Packet) {
		return func(p *simulate.Packet) {
			p.Protocol, p.ICMPType, p.HopLimit = unix.IPPROTO_ICMPV6, kind, hops
			if kind > 128 {
				p.State = "UNTRACKED" // as the kernel has all neighbour discovery
			}
		}
	}
	arriving := func(kind uint8, port string) func(*simulate.Packet) {
		return func(p *simulate.Packet) {
			icmp6(kind, 255)(p)
			p.PhysIn, p.PhysOut = port, "veth9"
		}
	}
	in := func(state string) func(*simulate.Packet) { return func(p *simulate.Packet) { p.State = state } }
	to := func(group string) func(*simulate.Packet) {
		return func(p *simulate.Packet) { p.Dst = netip.MustParseAddr(group) }
	}
	const peer = "vethwe-bridge"
	broadcast := func(from, port uint16) func(*simulate.Packet) {
		return func(p *simulate.Packet) {
			p.Broadcast, p.ToAll, p.Protocol, p.SrcPort, p.DstPort = true, true, unix.IPPROTO_UDP, from, port
			p.PhysIn, p.PhysOut = "veth0", "veth9"
		}
	}
	for _, c := range []struct {
		name      string
		from, to  string
		change    func(*simulate.Packet)
		only4     bool
		only6     bool
		accepted  bool
		configure func(*enforce.Config)
	}{
		{name: "nothing_special", from: client, to: web},
		{name: "S53_a_reply_in", from: client, to: web, change: in("ESTABLISHED"), accepted: true},
		{name: "S53_a_reply_out", from: web, to: client, change: in("ESTABLISHED"), accepted: true},
		{name: "S53_invalid", from: client, to: "b/client", change: in("INVALID")},
		{name: "S53_invalid_from_a_pod", from: client, to: "outside", change: in("INVALID")},
		{name: "S53_invalid_to_a_pod", from: "outside", to: client, change: in("INVALID")},
		{name: "S58_invalid_between_hosts_that_are_no_pods", from: "outside", to: "b/other", change: in("INVALID"), accepted: true},
		{name: "S59_invalid_to_what_the_gate_closes", from: "outside", to: "unknown", change: in("INVALID"),
			configure: func(c *enforce.Config) { c.FailClosed = enforce.FailClosedAlways }},
		{name: "S53_invalid_where_conntrack_is_liberal", from: client, to: "b/client", change: in("INVALID"), accepted: true,
			configure: func(c *enforce.Config) { c.TCPLiberal = true }},
		{name: "S52_a_pod_to_itself_through_its_service", from: web, to: web, change: func(p *simulate.Packet) { p.DNAT = true }, accepted: true},
		{name: "S52_to_another_pod_through_a_service", from: client, to: web, change: func(p *simulate.Packet) { p.DNAT = true }},
		{name: "S52_from_a_source_that_claims_to_be_it", from: web, to: web},
		{name: "S54_router_solicitation", from: client, to: web, change: icmp6(133, 255), only6: true, accepted: true},
		{name: "S54_router_advertisement_by_an_uplink", from: client, to: web, change: arriving(134, "eth1"), only6: true, accepted: true},
		{name: "S54_router_advertisement_by_the_bridges_port_to_other_nodes", from: client, to: web, change: arriving(134, peer), only6: true,
			accepted: true},
		{name: "S54_router_advertisement_of_a_pod", from: client, to: web, change: arriving(134, "veth0"), only6: true},
		{name: "S54_router_advertisement_of_a_pod_without_a_bridges_port", from: client, to: web, change: arriving(134, "veth0"), only6: true,
			configure: func(c *enforce.Config) { c.BridgePort = "" }},
		{name: "S54_neighbour_solicitation", from: web, to: client, change: icmp6(135, 255), only6: true, accepted: true},
		{name: "S54_neighbour_advertisement", from: client, to: web, change: icmp6(136, 255), only6: true, accepted: true},
		{name: "S54_redirect_by_an_uplink", from: client, to: web, change: arriving(137, "eth1"), only6: true, accepted: true},
		{name: "S54_redirect_of_a_pod", from: client, to: web, change: arriving(137, "veth0"), only6: true},
		{name: "S54_from_afar", from: client, to: web, change: icmp6(135, 254), only6: true},
		{name: "S55_echo", from: client, to: web, change: icmp6(128, 255), only6: true},
		{name: "S56_multicast", from: web, to: client, change: to("ff02::fb"), only6: true, accepted: true},
		{name: "S56_multicast_without_the_flag", from: client, to: web, change: to("ff02::fb"), only6: true,
			configure: func(c *enforce.Config) { c.AllowMcast = false }},
		{name: "S71_broadcast", from: client, to: "everybody", change: broadcast(40000, 7), only4: true},
		{name: "S71_broadcast_of_a_forged_address", from: "outside", to: "everybody", change: broadcast(40000, 7), only4: true},
		{name: "S71_broadcast_of_no_address_to_none", from: "none", to: "none", change: broadcast(40000, 7), only4: true},
		{name: "S71_broadcast_to_the_network", from: client, to: "network", change: broadcast(40000, 7), only4: true},
		{name: "S71_broadcast_invalid", from: "outside", to: "everybody", only4: true,
			change: func(p *simulate.Packet) { p.Broadcast, p.State = true, "INVALID" }},
		{name: "S71_broadcast_without_multicast", from: client, to: "everybody", change: broadcast(40000, 7), only4: true,
			configure: func(c *enforce.Config) { c.AllowMcast = false }},
		{name: "S71_broadcast_with_an_open_filter", from: client, to: "everybody", change: broadcast(40000, 7), only4: true,
			configure: func(c *enforce.Config) { c.FailClosed = enforce.FailClosedNever }},
		{name: "S71_broadcast_DHCP_asks", from: "none", to: "everybody", change: broadcast(68, 67), only4: true, accepted: true},
		{name: "S71_broadcast_DHCP_answers", from: client, to: "everybody", change: broadcast(67, 68), only4: true, accepted: true},
		{name: "S71_broadcast_by_an_uplink", from: "outside", to: "everybody", only4: true, accepted: true,
			change: func(p *simulate.Packet) { p.Broadcast, p.ToAll, p.PhysIn, p.PhysOut = true, true, peer, "veth9" }},
		{name: "S71_a_frame_to_all_for_a_free_pod", from: client, to: "b/client", change: func(p *simulate.Packet) { p.ToAll = true }},
		{name: "S71_a_frame_to_a_group_for_a_free_pod", from: client, to: "b/client", change: func(p *simulate.Packet) { p.ToGroup = true }},
		{name: "S71_a_frame_to_all_for_a_group", from: client, to: web, change: func(p *simulate.Packet) {
			p.ToAll = true
			to("ff02::fb")(p)
		}, only6: true},
		{name: "S71_neighbour_discovery_in_a_frame_to_all", from: client, to: web, change: func(p *simulate.Packet) {
			p.ToAll = true
			icmp6(135, 255)(p)
		}, only6: true, accepted: true},
		{name: "out_by_the_bridges_port_to_other_nodes", from: client, to: web, change: func(p *simulate.Packet) { p.PhysOut = peer }, accepted: true},
		{name: "in_by_the_bridges_port_from_other_nodes", from: "b/other", to: web, change: func(p *simulate.Packet) { p.PhysIn = peer }},
		{name: "from_an_isolated_pods_address_by_the_bridges_port", from: web, to: "b/client",
			change: func(p *simulate.Packet) { p.PhysIn = peer }, accepted: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			configure := func(*enforce.Config) {}
			if c.configure != nil {
				configure = c.configure
			}
			w := wireHarness(t, configure)
			for f := range w.Kernels {
				if c.only6 && f == int(npc.IPv4) || c.only4 && f == int(npc.IPv6) {
					continue
				}
				p := simulate.Packet{Src: w.Addrs[c.from][f], Dst: w.Addrs[c.to][f], Protocol: unix.IPPROTO_TCP, DstPort: 80, In: "cni0", Out: "cni0"}
				if c.change != nil {
					c.change(&p)
				}
				if v := w.Evaluate(p); v.Accepted != c.accepted {
					t.Errorf("%s > %s: accepted = %t, by %q", p.Src, p.Dst, v.Accepted, v.By)
				}
			}
		})
	}
}

// wireHarness returns a node with an isolated pod, a/web, with other pods and with addresses that belong to no pod.
func wireHarness(t *testing.T, configure func(*enforce.Config)) *harness {
	w := newHarness(t, configure)
	w.Namespace("a")
	w.Namespace("b")
	w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
	w.Pod("a/client", "10.32.1.3,fd32:1::3")
	w.Pod("b/client", "10.32.1.4,fd32:1::4")
	w.Addr("unknown", "10.32.1.99", "fd32:1::63")
	w.Addr("everybody", "255.255.255.255")
	w.Addr("none", "0.0.0.0")
	w.Addr("network", "10.32.1.255")
	w.Remote("b/other", "10.32.2.9,fd32:2::9")
	w.Policy("a/closed", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`)
	w.Sync()
	return w
}
