package enforce

import (
	"context"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weave-npc/weave-npc/test/lab"
)

// Specs of policies that several cases use.
const (
	closeWeb = `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`
	closeAll = `{podSelector: {}, policyTypes: [Ingress, Egress]}`
	dbToWeb  = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}`
)

// wireCases show what holds for every packet, whatever the peers are: what always passes, what only looks like a way
// around policies, and what a packet keeps.
func wireCases() []testCase {
	return []testCase{
		{name: "S50_a_pod_and_its_own_node_S51_another_node_is_outside", steps: []step{
			{do: policy("shop/p", closeAll), want: wants{"tcp 80": "-*>shop -shop>*", "udp 53": "-*>shop -shop>*",
				"icmp": "-*>shop -shop>*"}, then: func(t *testing.T, w *harness) {
				if w.attach != lab.Bridge {
					return
				}
				for _, r := range w.Node("node1").PodRanges() {
					w.probe(t, "web", lab.Packet{Proto: "icmp", To: r.Addr().Next()}, lab.Allowed)
				}
			}},
			{about: "another node is in an address block", do: policy("shop/p", `
podSelector: {}
policyTypes: [Ingress, Egress]
ingress: [{from: [{ipBlock: {cidr: 172.31.0.0/24}}, {ipBlock: {cidr: "fd31::/64"}}]}]`),
				want: wants{"tcp 80": "-*>shop -shop>* +nodes>shop"}},
		}},
		{name: "S54_neighbour_discovery_always_passes", steps: []step{
			{do: do(policy("shop/p", closeAll), policy("ops/p", closeAll)), then: func(t *testing.T, w *harness) {
				web := w.hosts["web"]
				run(t, web, "ip", "-6", "neigh", "flush", "dev", "eth0")
				w.probe(t, "web", lab.Packet{Proto: "tcp", To: w.hosts["n1"].Addr6(), Port: 80}, lab.Allowed)
				if w.attach != lab.Bridge {
					return
				}
				run(t, w.hosts["db"], "ip", "-6", "neigh", "flush", "dev", "eth0")
				db := w.hosts["db"].Addr6()
				w.probe(t, "web", lab.Packet{Proto: "tcp", To: db, Port: 80}, lab.Dropped)
				neighbour := run(t, web, "ip", "-6", "neigh", "show", db.String(), "dev", "eth0")
				if !strings.Contains(neighbour, "lladdr") {
					t.Errorf("web has not found db: %q\n%s", neighbour, w.state())
				}
				// A hop limit below 255: a router has passed this one on, or it is forged.
				packet := craft(t, web.Addr6(), db, 64, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(135, 0)},
					gopacket.Payload("\x00\x00\x00\x00"+string(db.AsSlice())+"solicitation"))
				if crosses(t, web, packet, w.hosts["db"], "solicitation") {
					t.Errorf("a solicitation with hop limit 64 passed\n%s", w.state())
				}
			}},
		}},
		{name: "S55_echo_is_denied_unless_every_protocol_is_allowed", steps: []step{
			{do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress:
- from: [{podSelector: {matchLabels: {app: db}}}]
  ports: [{port: 1, endPort: 65535}, {protocol: UDP}, {protocol: SCTP}]
- from: [{namespaceSelector: {matchLabels: {team: b}}}]`),
				want: wants{"icmp": "-*>web +ops>web", "tcp 80": "-*>web +db,ops>web"}},
		}},
		{name: "S56_multicast_is_allowed_by_default", steps: []step{
			{do: do(policy("shop/p", closeAll)), then: func(t *testing.T, w *harness) { multicast(t, w, true) }},
		}},
		{name: "S57_the_mark_of_a_packet_is_left_as_it_was", steps: []step{
			{do: policy("shop/p", dbToWeb), then: func(t *testing.T, w *harness) {
				families(func(family int) { keepsMark(t, w, family) })
			}},
		}},
		{name: "S58_what_is_no_pods_is_none_of_our_business", steps: []step{
			{about: "a request for an address", do: do(policy("shop/p", closeAll), policy("ops/p", closeAll)),
				then: func(t *testing.T, w *harness) {
					if w.attach != lab.Bridge {
						return
					}
					request := craft(t, netip.IPv4Unspecified(), netip.AddrFrom4([4]byte{255, 255, 255, 255}), 64,
						&layers.UDP{SrcPort: 68, DstPort: 67}, gopacket.Payload("discover"))
					frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 0}, request...)
					capture, err := w.hosts["db"].Capture("eth0")
					if err != nil {
						t.Fatal(err)
					}
					defer capture.Close()
					if err := w.hosts["web"].SendFrame("eth0", frame); err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), converged)
					defer cancel()
					if _, err := capture.Await(ctx, func(f lab.Frame) bool {
						return !f.Outgoing && strings.HasSuffix(string(f.IP()), "discover")
					}); err != nil {
						t.Errorf("%v\n%s", err, w.state())
					}
				}},
		}},
		{name: "S68_link_local_addresses_are_no_way_around", steps: []step{
			{about: "open without a policy", then: func(t *testing.T, w *harness) { linkLocal(t, w, "db", "web", lab.Allowed) }},
			{about: "ingress, on the first node", do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}}`),
				then: func(t *testing.T, w *harness) { linkLocal(t, w, "db", "web", lab.Dropped) }},
			{about: "egress", do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`),
				then: func(t *testing.T, w *harness) { linkLocal(t, w, "web", "db", lab.Dropped) }},
			{about: "ingress, on the second node", do: policy("ops/p", `{podSelector: {matchLabels: {app: web}}}`),
				then: func(t *testing.T, w *harness) { linkLocal(t, w, "api", "copy", lab.Dropped) }},
			{about: "open again", do: without("shop/p", "ops/p"), then: func(t *testing.T, w *harness) {
				linkLocal(t, w, "db", "web", lab.Allowed)
				linkLocal(t, w, "api", "copy", lab.Allowed)
			}},
		}},
	}
}

// multicast sends to groups from isolated pods to isolated ones. Only a bridge carries it.
func multicast(t *testing.T, w *harness, wanted bool) {
	t.Helper()
	if w.attach != lab.Bridge {
		return
	}
	for _, group := range []string{"224.0.0.251", "ff02::fb"} {
		to := netip.MustParseAddr(group)
		family := 4
		if to.Is6() {
			family = 6
		}
		packet := craft(t, w.hosts["web"].Addr(family), to, 1, udp(5353, "to "+group)...)
		if crosses(t, w.hosts["web"], packet, w.hosts["db"], "to "+group) != wanted {
			t.Errorf("%s must arrive: %t\n%s", group, wanted, w.state())
		}
	}
}

// linkLocal probes between pods of one bridge.
func linkLocal(t *testing.T, w *harness, from, to string, wanted lab.Verdict) {
	t.Helper()
	if w.attach != lab.Bridge {
		return
	}
	addr, err := w.hosts[to].LinkLocal("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []lab.Packet{{Proto: "tcp", Port: 80}, {Proto: "udp", Port: 53}, {Proto: "icmp"}} {
		p.To = addr.WithZone("eth0")
		w.probe(t, from, p, wanted)
	}
}

// keepsMark marks packets before weave-npc sees them, and counts those that still have the mark behind it.
func keepsMark(t *testing.T, w *harness, family int) {
	t.Helper()
	iptables := map[int]string{4: "iptables-", 6: "ip6tables-"}[family] + string(w.backend)
	from := w.hosts["db"].Addr(family).String()
	rules := [][]string{
		{"PREROUTING", "-s", from, "-j", "MARK", "--set-mark", "0x2a"},
		{"POSTROUTING", "-s", from, "-m", "mark", "--mark", "0x2a"},
		{"POSTROUTING", "-s", from, "-m", "mark", "!", "--mark", "0x2a"},
	}
	for _, rule := range rules {
		run(t, w.hosts["n1"], iptables, append([]string{"-w", "-t", "mangle", "-A"}, rule...)...)
	}
	for _, to := range []string{"web", "api"} {
		w.probe(t, "db", lab.Packet{Proto: "tcp", To: w.hosts[to].Addr(family), Port: 80}, lab.Allowed)
	}
	counters := run(t, w.hosts["n1"], iptables, "-w", "-t", "mangle", "-nvxL", "POSTROUTING")
	for _, rule := range rules {
		run(t, w.hosts["n1"], iptables, append([]string{"-w", "-t", "mangle", "-D"}, rule...)...)
	}
	found := regexp.MustCompile(`(?m)^ *(\d+) .* mark match (!?)`).FindAllStringSubmatch(counters, -1)
	if len(found) != 2 || found[0][1] == "0" || found[1][1] != "0" || found[1][2] != "!" {
		t.Errorf("IPv%d: packets lost their mark, or none was seen\n%s", family, counters)
	}
}
