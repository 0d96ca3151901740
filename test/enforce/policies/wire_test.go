package policies

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// wireCases show what holds for every packet, whatever the peers are: what always passes, what only looks like a way
// around policies, and what a packet keeps.
func wireCases() []e2e.Case {
	return []e2e.Case{
		{Name: "S50_a_pod_and_its_own_node_S51_another_node_is_outside", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", e2e.CloseAll), Want: e2e.Wants{"tcp 80": "-*>shop -shop>*",
				"udp 53": "-*>shop -shop>*",
				"icmp":   "-*>shop -shop>*"}, Then: func(t *testing.T, w *e2e.Cluster) {
				if w.Attach != lab.Bridge {
					return
				}
				for _, r := range w.Node("node1").PodRanges() {
					w.Probe(t, "web", lab.Packet{Proto: "icmp", To: r.Addr().Next()}, lab.Allowed)
				}
			}},
			{About: "another node is in an address block", Do: e2e.Policy("shop/p", `
podSelector: {}
policyTypes: [Ingress, Egress]
ingress: [{from: [{ipBlock: {cidr: 172.31.0.0/24}}, {ipBlock: {cidr: "fd31::/64"}}]}]`),
				Want: e2e.Wants{"tcp 80": "-*>shop -shop>* +nodes>shop"}},
		}},
		{Name: "S54_neighbour_discovery_always_passes", Steps: []e2e.Step{
			{Do: e2e.Do(e2e.Policy("shop/p", e2e.CloseAll), e2e.Policy("ops/p", e2e.CloseAll)),
				Then: func(t *testing.T, w *e2e.Cluster) {
					web := w.Hosts["web"]
					e2e.Run(t, web, "ip", "-6", "neigh", "flush", "dev", "eth0")
					w.Probe(t, "web", lab.Packet{Proto: "tcp", To: w.Hosts["n1"].Addr6(), Port: 80}, lab.Allowed)
					if w.Attach != lab.Bridge {
						return
					}
					e2e.Run(t, w.Hosts["db"], "ip", "-6", "neigh", "flush", "dev", "eth0")
					db := w.Hosts["db"].Addr6()
					w.Probe(t, "web", lab.Packet{Proto: "tcp", To: db, Port: 80}, lab.Dropped)
					var neighbour string
					await.Within(t, e2e.Converged, func() bool {
						neighbour = e2e.Run(t, web, "ip", "-6", "neigh", "show", db.String(), "dev", "eth0")
						return strings.Contains(neighbour, "lladdr")
					}, func() string { return fmt.Sprintf("web has not found db: %q\n%s", neighbour, w.State()) })
					// A hop limit below 255: a router has passed this one on, or it is forged.
					packet := e2e.Craft(t, web.Addr6(), db, 64, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(135,
						0)},
						gopacket.Payload("\x00\x00\x00\x00"+string(db.AsSlice())+"solicitation"))
					if e2e.Crosses(t, web, packet, w.Hosts["db"], "solicitation", false) {
						t.Errorf("a solicitation with hop limit 64 passed\n%s", w.State())
					}
				}},
		}},
		{Name: "S55_echo_is_denied_unless_every_protocol_is_allowed", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress:
- from: [{podSelector: {matchLabels: {app: db}}}]
  ports: [{port: 1, endPort: 65535}, {protocol: UDP}, {protocol: SCTP}]
- from: [{namespaceSelector: {matchLabels: {team: b}}}]`),
				Want: e2e.Wants{"icmp": "-*>web +ops>web", "tcp 80": "-*>web +db,ops>web"}},
		}},
		{Name: "S56_multicast_is_allowed_by_default", Steps: []e2e.Step{
			{Do: e2e.Do(e2e.Policy("shop/p", e2e.CloseAll)),
				Then: func(t *testing.T, w *e2e.Cluster) { e2e.Multicast(t, w, true) }},
		}},
		{Name: "S57_the_mark_of_a_packet_is_left_as_it_was", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", e2e.DBToWeb), Then: func(t *testing.T, w *e2e.Cluster) {
				e2e.EachFamily(func(family int) { keepsMark(t, w, family) })
			}},
		}},
		{Name: "S58_what_is_no_pods_is_none_of_our_business", Steps: []e2e.Step{
			{About: "a request for an address", Do: e2e.Do(e2e.Policy("shop/p", e2e.CloseAll),
				e2e.Policy("ops/p", e2e.CloseAll)),
				Then: func(t *testing.T, w *e2e.Cluster) {
					if w.Attach != lab.Bridge {
						return
					}
					request := e2e.Craft(t, netip.IPv4Unspecified(), netip.AddrFrom4([4]byte{255, 255, 255, 255}), 64,
						&layers.UDP{SrcPort: 68, DstPort: 67}, gopacket.Payload("discover"))
					frame := slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
						e2e.HardwareAddr(t, w.Hosts["web"]), []byte{8, 0}, request)
					capture, err := w.Hosts["db"].Capture("eth0")
					if err != nil {
						t.Fatal(err)
					}
					defer capture.Close()
					if err := w.Hosts["web"].SendFrame("eth0", frame); err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), e2e.Converged)
					defer cancel()
					if _, err := capture.Await(ctx, func(f lab.Frame) bool {
						return !f.Outgoing && strings.HasSuffix(string(f.IP()), "discover")
					}); err != nil {
						t.Errorf("%v\n%s", err, w.State())
					}
				}},
		}},
		{Name: "S68_link_local_addresses_are_no_way_around", Steps: []e2e.Step{
			{About: "open without a policy", Then: func(t *testing.T, w *e2e.Cluster) {
				linkLocal(t, w, "db", "web",
					lab.Allowed)
			}},
			{About: "ingress, on the first node", Do: e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}}`),
				Then: func(t *testing.T, w *e2e.Cluster) { linkLocal(t, w, "db", "web", lab.Dropped) }},
			{About: "egress", Do: e2e.Policy("shop/p",
				`{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`),
				Then: func(t *testing.T, w *e2e.Cluster) { linkLocal(t, w, "web", "db", lab.Dropped) }},
			{About: "ingress, on the second node", Do: e2e.Policy("ops/p", `{podSelector: {matchLabels: {app: web}}}`),
				Then: func(t *testing.T, w *e2e.Cluster) { linkLocal(t, w, "api", "copy", lab.Dropped) }},
			{About: "open again", Do: e2e.Without("shop/p", "ops/p"), Then: func(t *testing.T, w *e2e.Cluster) {
				linkLocal(t, w, "db", "web", lab.Allowed)
				linkLocal(t, w, "api", "copy", lab.Allowed)
			}},
		}},
	}
}

// linkLocal probes between pods of one bridge.
func linkLocal(t *testing.T, w *e2e.Cluster, from, to string, wanted lab.Verdict) {
	t.Helper()
	if w.Attach != lab.Bridge {
		return
	}
	addr, err := w.Hosts[to].LinkLocal("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []lab.Packet{{Proto: "tcp", Port: 80}, {Proto: "udp", Port: 53}, {Proto: "icmp"}} {
		p.To = addr.WithZone("eth0")
		w.Probe(t, from, p, wanted)
	}
}

// keepsMark marks packets before weave-npc sees them, and counts those that still have the mark behind it.
func keepsMark(t *testing.T, w *e2e.Cluster, family int) {
	t.Helper()
	iptables := map[int]string{4: "iptables-", 6: "ip6tables-"}[family] + string(w.Backend)
	from := w.Hosts["db"].Addr(family).String()
	rules := [][]string{
		{"PREROUTING", "-s", from, "-j", "MARK", "--set-mark", "0x2a"},
		{"POSTROUTING", "-s", from, "-m", "mark", "--mark", "0x2a"},
		{"POSTROUTING", "-s", from, "-m", "mark", "!", "--mark", "0x2a"},
	}
	for _, rule := range rules {
		e2e.Run(t, w.Hosts["n1"], iptables, append([]string{"-w", "-t", "mangle", "-A"}, rule...)...)
	}
	for _, to := range []string{"web", "api"} {
		w.Probe(t, "db", lab.Packet{Proto: "tcp", To: w.Hosts[to].Addr(family), Port: 80}, lab.Allowed)
	}
	counters := e2e.Run(t, w.Hosts["n1"], iptables, "-w", "-t", "mangle", "-nvxL", "POSTROUTING")
	for _, rule := range rules {
		e2e.Run(t, w.Hosts["n1"], iptables, append([]string{"-w", "-t", "mangle", "-D"}, rule...)...)
	}
	found := regexp.MustCompile(`(?m)^ *(\d+) .* mark match (!?)`).FindAllStringSubmatch(counters, -1)
	if len(found) != 2 || found[0][1] == "0" || found[1][1] != "0" || found[1][2] != "!" {
		t.Errorf("IPv%d: packets lost their mark, or none was seen\n%s", family, counters)
	}
}
