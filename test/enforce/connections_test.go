package enforce

import (
	"fmt"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weave-npc/weave-npc/test/lab"
)

// connectionCases show which packets count as part of a connection: answers, ICMP errors, fragments, and packets that
// only look like one.
func connectionCases() []testCase {
	return []testCase{
		{name: "S53_an_established_connection_survives_an_edit_and_icmp_errors_pass", steps: []step{
			{do: policy("shop/p", dbToWeb), want: wants{"tcp 80": "-*>web +db>web"}, then: func(t *testing.T, w *harness) {
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
			{do: policy("shop/p", dbToWeb), want: wants{"tcp 80": "-*>web +db>web"}, then: func(t *testing.T, w *harness) {
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
		{name: "S58_between_hosts_that_are_no_pods_a_packet_need_not_belong_to_a_connection", steps: []step{
			{do: do(policy("shop/p", closeAll), policy("ops/p", closeAll)), then: betweenGuests},
		}},
		{name: "S69_fragments_get_the_verdict_of_the_packet", steps: []step{
			{do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {}}], ports: [{port: 53, protocol: UDP}]}]`), then: func(t *testing.T, w *harness) {
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

// betweenGuests sends, on every node, what belongs to no connection between two hosts that are attached like pods and
// are none, and between one of them and a pod.
func betweenGuests(t *testing.T, w *harness) {
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
