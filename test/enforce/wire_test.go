package enforce

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weave-npc/weave-npc/test/lab"
)

// wireCases show what holds for every packet, whatever the peers are.
func wireCases() []testCase {
	const (
		closeWeb = `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`
		closeAll = `{podSelector: {}, policyTypes: [Ingress, Egress]}`
		dbToWeb  = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}`
	)
	return []testCase{
		{name: "S42_a_port_is_the_pods_after_translation_S39_and_so_is_the_peer", steps: []step{
			{about: "8080 of the Service is 80 of the pod", do: policy("shop/p",
				`{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}]}`), then: func(t *testing.T, w *world) {
				families(func(family int) {
					virtual := w.service(t, "n1", family, 1, "tcp", 8080, "web", 80)
					w.probe(t, "db", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Allowed)
					w.probe(t, "n1", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Allowed)
				})
			}},
			{about: "the policy names the Service's port", do: policy("shop/p",
				`{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 8080}]}]}`),
				then: func(t *testing.T, w *world) {
					families(func(family int) {
						virtual := serviceAddr(family, 1, 8080)
						w.probe(t, "db", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Dropped)
					})
				}},
			{about: "egress to the pod behind", do: do(without("shop/p"), policy("shop/q", `
podSelector: {matchLabels: {app: db}}
policyTypes: [Egress]
egress: [{to: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}]`)), then: func(t *testing.T, w *world) {
				families(func(family int) {
					virtual := serviceAddr(family, 1, 8080)
					w.probe(t, "db", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Allowed)
				})
			}},
			{about: "egress to the Service's address", do: policy("shop/q", `
podSelector: {matchLabels: {app: db}}
policyTypes: [Egress]
egress: [{to: [{ipBlock: {cidr: 10.96.0.0/16}}, {ipBlock: {cidr: "fd10:96::/112"}}]}]`),
				then: func(t *testing.T, w *world) {
					families(func(family int) {
						virtual := serviceAddr(family, 1, 8080)
						w.probe(t, "db", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Dropped)
					})
				}},
		}},
		{name: "S39_ingress_through_the_node_sees_the_clients_address", steps: []step{
			{do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{ipBlock: {cidr: $out4/32}}, {ipBlock: {cidr: $out6/128}}]}]`), then: func(t *testing.T, w *world) {
				families(func(family int) {
					// externalTrafficPolicy: Local
					port := netip.AddrPortFrom(w.hosts["n1"].Addr(family), 30080)
					w.translate(t, "n1", "tcp", port, netip.AddrPortFrom(w.hosts["web"].Addr(family), 80))
					w.probe(t, "out", lab.Packet{Proto: "tcp", To: port.Addr(), Port: port.Port()}, lab.Allowed)
					w.probe(t, "n2", lab.Packet{Proto: "tcp", To: port.Addr(), Port: port.Port()}, lab.Dropped)
				})
			}},
		}},
		{name: "S50_a_pod_and_its_own_node_S51_another_node_is_outside", steps: []step{
			{do: policy("shop/p", closeAll), want: wants{"tcp 80": "-*>shop -shop>*", "udp 53": "-*>shop -shop>*",
				"icmp": "-*>shop -shop>*"}, then: func(t *testing.T, w *world) {
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
		{name: "S52_a_pod_reaches_itself_through_its_service", steps: []step{
			{do: policy("shop/p", closeWeb), want: wants{"tcp 80": "-*>web -web>*"}, then: func(t *testing.T, w *world) {
				families(func(family int) {
					virtual := w.service(t, "n1", family, 2, "tcp", 8080, "web", 80)
					w.probe(t, "web", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Allowed)
					w.probe(t, "db", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Dropped)
				})
			}},
		}},
		{name: "S52_a_packet_that_claims_to_come_from_its_receiver", steps: []step{
			{about: "arrives without a policy", then: func(t *testing.T, w *world) { spoofed(t, w, true) }},
			{about: "and does not with one", do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}}`),
				then: func(t *testing.T, w *world) { spoofed(t, w, false) }},
		}},
		{name: "S53_an_established_connection_survives_an_edit_and_icmp_errors_pass", steps: []step{
			{do: policy("shop/p", dbToWeb), want: wants{"tcp 80": "-*>web +db>web"}, then: func(t *testing.T, w *world) {
				var talks []conversation
				for _, from := range []string{"db", "n1"} {
					families(func(family int) { talks = append(talks, w.converse(t, from, "web", family)) })
				}
				flow := func(family int) lab.Packet {
					return lab.Packet{Proto: "udp", To: w.hosts["web"].Addr(family), Port: 53, FromPort: 45000}
				}
				families(func(family int) { w.probe(t, "db", flow(family), lab.Allowed) })
				o := w.baseObjects()
				policy("shop/p", closeWeb)(w, o)
				policy("shop/q", closeAll)(w, o)
				w.apply(t, o)
				w.expect(t, wants{"tcp 80": "-*>shop -shop>*", "udp 53": "-*>shop -shop>*"})
				for _, c := range talks {
					c.say(t)
				}
				families(func(family int) { w.probe(t, "db", flow(family), lab.Allowed) })
			}},
			{about: "a closed port's answer passes, whatever the other direction says", do: do(
				policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress, Egress]
ingress: [{from: [{podSelector: {matchLabels: {app: api}}}]}]`),
				policy("shop/q", `
podSelector: {matchLabels: {app: api}}
policyTypes: [Ingress, Egress]
egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]`)),
				want: wants{"udp 9": "-*>web,api -web,api>* +api>web", "tcp 9": "-*>web,api -web,api>* +api>web"}},
		}},
		{name: "S53_a_packet_that_belongs_to_no_connection_is_dropped", steps: []step{
			{do: policy("shop/p", dbToWeb), want: wants{"tcp 80": "-*>web +db>web"}, then: func(t *testing.T, w *world) {
				families(func(family int) {
					web, db := w.hosts["web"], w.hosts["db"]
					segment := func(syn, ack bool, payload string) []byte {
						return craft(t, db.Addr(family), web.Addr(family), 64, &layers.TCP{SrcPort: 41000, DstPort: 80, Seq: 1000, Ack: 1,
							SYN: syn, ACK: ack, Window: 1000}, gopacket.Payload(payload))
					}
					if crosses(t, db, segment(true, true, "answer"), web, "answer") {
						t.Errorf("IPv%d: the answer to nothing passed\n%s", family, w.state())
					}
					if !crosses(t, db, segment(true, false, "request"), web, "request") {
						t.Errorf("IPv%d: a SYN did not pass\n%s", family, w.state())
					}
				})
			}},
		}},
		{name: "S54_neighbour_discovery_always_passes", steps: []step{
			{do: do(policy("shop/p", closeAll), policy("ops/p", closeAll)), then: func(t *testing.T, w *world) {
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
				// A router has passed this one on, or somebody pretends.
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
			{do: do(policy("shop/p", closeAll)), then: func(t *testing.T, w *world) { multicast(t, w, true) }},
		}},
		{name: "S57_the_mark_of_a_packet_is_left_as_it_was", steps: []step{
			{do: policy("shop/p", dbToWeb), then: func(t *testing.T, w *world) {
				families(func(family int) { keepsMark(t, w, family) })
			}},
		}},
		{name: "S58_what_is_no_pods_is_none_of_our_business", steps: []step{
			{about: "a request for an address", do: do(policy("shop/p", closeAll), policy("ops/p", closeAll)),
				then: func(t *testing.T, w *world) {
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
		{name: "S58_between_hosts_that_are_no_pods_a_packet_need_not_belong_to_a_connection", steps: []step{
			{do: do(policy("shop/p", closeAll), policy("ops/p", closeAll)), then: betweenGuests},
		}},
		{name: "S68_link_local_addresses_are_no_way_around", steps: []step{
			{about: "open without a policy", then: func(t *testing.T, w *world) { linkLocal(t, w, "db", "web", lab.Allowed) }},
			{about: "ingress, on the first node", do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}}`),
				then: func(t *testing.T, w *world) { linkLocal(t, w, "db", "web", lab.Dropped) }},
			{about: "egress", do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`),
				then: func(t *testing.T, w *world) { linkLocal(t, w, "web", "db", lab.Dropped) }},
			{about: "ingress, on the second node", do: policy("ops/p", `{podSelector: {matchLabels: {app: web}}}`),
				then: func(t *testing.T, w *world) { linkLocal(t, w, "api", "copy", lab.Dropped) }},
			{about: "open again", do: without("shop/p", "ops/p"), then: func(t *testing.T, w *world) {
				linkLocal(t, w, "db", "web", lab.Allowed)
				linkLocal(t, w, "api", "copy", lab.Allowed)
			}},
		}},
		{name: "S69_fragments_get_the_verdict_of_the_packet", steps: []step{
			{do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {}}], ports: [{port: 53, protocol: UDP}]}]`), then: func(t *testing.T, w *world) {
				families(func(family int) {
					for from, verdict := range map[string]lab.Verdict{"db": lab.Allowed, "api": lab.Allowed, "mon": lab.Dropped,
						"copy": lab.Dropped} {
						w.probe(t, from, lab.Packet{Proto: "udp", To: w.hosts["web"].Addr(family), Port: 53, Size: 4000}, verdict)
					}
					w.probe(t, "db", lab.Packet{Proto: "icmp", To: w.hosts["web"].Addr(family), Size: 4000}, lab.Dropped)
				})
			}},
		}},
	}
}

// serviceAddr is the virtual address of a service.
func serviceAddr(family int, number byte, port uint16) netip.AddrPort {
	addr := netip.AddrFrom4([4]byte{10, 96, 0, number})
	if family == 6 {
		addr = netip.AddrFrom16([16]byte{0xfd, 0x10, 0, 0x96, 15: number})
	}
	return netip.AddrPortFrom(addr, port)
}

// service makes a node translate a virtual address to a pod's.
func (w *world) service(t *testing.T, node string, family int, number byte, proto string, port uint16, pod string,
	podPort uint16) netip.AddrPort {
	t.Helper()
	virtual := serviceAddr(family, number, port)
	w.translate(t, node, proto, virtual, netip.AddrPortFrom(w.hosts[pod].Addr(family), podPort))
	return virtual
}

func (w *world) translate(t *testing.T, node, proto string, virtual, pod netip.AddrPort) {
	t.Helper()
	for _, n := range w.Nodes() {
		if n.Host != w.hosts[node] {
			continue
		}
		service := lab.Service{Backend: w.backend, Proto: proto, Virtual: virtual, Pod: pod}
		if err := n.AddService(t.Context(), service); err != nil {
			t.Fatal(err)
		}
	}
}

// spoofed sends from db what claims to come from web, to web, on their node and from the other one.
func spoofed(t *testing.T, w *world, wanted bool) {
	t.Helper()
	families(func(family int) {
		web := w.hosts["web"].Addr(family)
		for _, from := range []string{"db", "api"} {
			packet := craft(t, web, web, 64, udp(53, "spoofed by "+from)...)
			if crosses(t, w.hosts[from], packet, w.hosts["web"], "spoofed by "+from) != wanted {
				t.Errorf("IPv%d, from %s: it must arrive: %t\n%s", family, from, wanted, w.state())
			}
		}
	})
}

// multicast sends to groups from isolated pods to isolated ones. Only a bridge carries it.
func multicast(t *testing.T, w *world, wanted bool) {
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
func linkLocal(t *testing.T, w *world, from, to string, wanted lab.Verdict) {
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
func keepsMark(t *testing.T, w *world, family int) {
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

// betweenGuests sends, on every node, what belongs to no connection between two hosts that are attached like pods and are none, and
// between one of them and a pod.
func betweenGuests(t *testing.T, w *world) {
	for node, pod := range map[string]string{"node1": "web", "node2": "api"} {
		var guests [2]*lab.Host
		for i := range guests {
			g, err := w.Node(node).AddPod(fmt.Sprintf("guest%d-%s", i, node), lab.PodConfig{})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			guests[i] = g.Host
		}
		families(func(family int) {
			answers := func(from, to *lab.Host) bool {
				packet := craft(t, from.Addr(family), to.Addr(family), 64, &layers.TCP{SrcPort: 41000, DstPort: 80, Seq: 1000, Ack: 1,
					SYN: true, ACK: true, Window: 1000}, gopacket.Payload("answer"))
				return crosses(t, from, packet, to, "answer")
			}
			if !answers(guests[0], guests[1]) {
				t.Errorf("IPv%d, %s: a packet between two hosts that are no pods was dropped\n%s", family, node, w.state())
			}
			if answers(guests[0], w.hosts[pod]) || answers(w.hosts[pod], guests[0]) {
				t.Errorf("IPv%d, %s: a packet to or from a pod passed that belongs to no connection\n%s", family, node, w.state())
			}
		})
	}
}
