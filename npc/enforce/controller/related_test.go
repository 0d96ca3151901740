package controller_test

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
)

// icmpError makes a packet an ICMP error, about one that was sent to its sender or to another.
func icmpError(own bool) func(*simulate.Packet) {
	return func(p *simulate.Packet) {
		p.State, p.Protocol, p.Quoted = "RELATED", unix.IPPROTO_ICMP, netip.MustParseAddr("192.0.2.1")
		if p.Src.Is6() {
			p.Protocol = unix.IPPROTO_ICMPV6
		}
		if own {
			p.Quoted = p.Src
		}
	}
}

// expected makes a packet one that opens a connection which a helper expects.
func expected(helper string) func(*simulate.Packet) {
	return func(p *simulate.Packet) { p.State, p.Helper = "RELATED", helper }
}

// TestRelated shows the verdicts on packets that conntrack calls related to a connection.
func TestRelated(t *testing.T) {
	const (
		web    = "a/web"
		client = "a/client"
	)
	helpers := func(c *enforce.Config) { c.Helpers = []string{"tftp", "ftp"} }
	closed := func(c *enforce.Config) { c.FailClosed = enforce.FailClosedAlways }
	for _, c := range []struct {
		name      string
		from, to  string
		change    func(*simulate.Packet)
		accepted  bool
		configure func(*enforce.Config)
	}{
		{name: "S53_an_error_in", from: client, to: web, change: icmpError(true), accepted: true},
		{name: "S53_an_error_out", from: web, to: client, change: icmpError(true), accepted: true},
		{name: "S53_an_error_of_a_router", from: "outside", to: web, change: icmpError(false), accepted: true},
		{name: "S53_an_error_of_a_router_behind_an_uplink", from: "outside", to: web, accepted: true, configure: closed,
			change: func(p *simulate.Packet) {
				icmpError(false)(p)
				p.PhysIn = "vethwe-bridge"
			}},
		{name: "S106_an_error_about_a_packet_to_another", from: client, to: "b/client", change: icmpError(false)},
		{name: "S106_an_error_of_an_unknown_pod", from: "unknown", to: "b/client", change: icmpError(false), configure: closed},
		{name: "S106_where_conntrack_is_liberal", from: client, to: "b/client", change: icmpError(false),
			configure: func(c *enforce.Config) { c.TCPLiberal = true }},
		{name: "S53_what_a_helper_expects_in", from: client, to: web, change: expected("ftp")},
		{name: "S53_what_a_helper_expects_out", from: web, to: client, change: expected("ftp")},
		{name: "S53_what_a_helper_expects_where_policies_allow_it", from: client, to: "b/client", change: expected("ftp"),
			accepted: true},
		{name: "S53_what_an_allowed_helper_expects", from: client, to: web, change: expected("ftp"), accepted: true,
			configure: helpers},
		{name: "S53_what_another_helper_expects", from: client, to: web, change: expected("irc"), configure: helpers},
	} {
		t.Run(c.name, func(t *testing.T) {
			configure := func(*enforce.Config) {}
			if c.configure != nil {
				configure = c.configure
			}
			w := wireHarness(t, configure)
			for _, f := range npc.Families {
				p := simulate.Packet{Src: w.Addrs[c.from][f], Dst: w.Addrs[c.to][f], Protocol: unix.IPPROTO_TCP, DstPort: 80,
					In: "cni0", Out: "cni0"}
				c.change(&p)
				if v := w.Evaluate(p); v.Accepted != c.accepted {
					t.Errorf("%s > %s: accepted = %t, by %q", p.Src, p.Dst, v.Accepted, v.By)
				}
			}
		})
	}
}
