package policies

import (
	"fmt"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// connectionCases show which packets count as part of a connection: answers, ICMP errors, fragments, and packets that
// only look like one.
func connectionCases() []e2e.Case {
	return []e2e.Case{
		{Name: "S53_an_established_connection_survives_an_edit_and_icmp_errors_pass", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", e2e.DBToWeb), Want: e2e.Wants{"tcp 80": "-*>web +db>web"},
				Then: func(t *testing.T, w *e2e.Cluster) {
					var talks []e2e.Conversation
					for _, from := range []string{"db", "n1"} {
						e2e.EachFamily(func(family int) { talks = append(talks, w.Converse(t, from, "web", family)) })
					}
					flow := func(family int) lab.Packet {
						return lab.Packet{Proto: "udp", To: w.Hosts["web"].Addr(family), Port: 53, FromPort: 45000}
					}
					e2e.EachFamily(func(family int) { w.Probe(t, "db", flow(family), lab.Allowed) })
					o := w.BaseObjects()
					e2e.Policy("shop/p", e2e.CloseWeb)(w, o)
					e2e.Policy("shop/q", e2e.CloseAll)(w, o)
					w.Apply(t, o)
					w.Expect(t, e2e.Wants{"tcp 80": "-*>shop -shop>*", "udp 53": "-*>shop -shop>*"})
					for _, c := range talks {
						c.Say(t)
					}
					e2e.EachFamily(func(family int) { w.Probe(t, "db", flow(family), lab.Allowed) })
				}},
			{About: "a closed port's answer passes, whatever the other direction says", Do: e2e.Do(
				e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
policyTypes: [Ingress, Egress]
ingress: [{from: [{podSelector: {matchLabels: {app: api}}}]}]`),
				e2e.Policy("shop/q", `
podSelector: {matchLabels: {app: api}}
policyTypes: [Ingress, Egress]
egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]`)),
				Want: e2e.Wants{"udp 9": "-*>web,api -web,api>* +api>web", "tcp 9": "-*>web,api -web,api>* +api>web"}},
		}},
		{Name: "S53_a_packet_that_belongs_to_no_connection_is_dropped", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", e2e.DBToWeb), Want: e2e.Wants{"tcp 80": "-*>web +db>web"},
				Then: func(t *testing.T, w *e2e.Cluster) {
					e2e.EachFamily(func(family int) {
						web, db := w.Hosts["web"], w.Hosts["db"]
						segment := func(syn, ack bool, payload string) []byte {
							return e2e.Craft(t, db.Addr(family), web.Addr(family), 64, &layers.TCP{SrcPort: 41000,
								DstPort: 80, Seq: 1000, Ack: 1,
								SYN: syn, ACK: ack, Window: 1000}, gopacket.Payload(payload))
						}
						if e2e.Crosses(t, db, segment(true, true, "answer"), web, "answer", false) {
							t.Errorf("IPv%d: the answer to nothing passed\n%s", family, w.State())
						}
						if !e2e.Crosses(t, db, segment(true, false, "request"), web, "request", true) {
							t.Errorf("IPv%d: a SYN did not pass\n%s", family, w.State())
						}
					})
				}},
		}},
		{Name: "S58_between_hosts_that_are_no_pods_a_packet_need_not_belong_to_a_connection", Steps: []e2e.Step{
			{Do: e2e.Do(e2e.Policy("shop/p", e2e.CloseAll), e2e.Policy("ops/p", e2e.CloseAll)), Then: betweenGuests},
		}},
		{Name: "S69_fragments_get_the_verdict_of_the_packet", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{podSelector: {}}], ports: [{port: 53, protocol: UDP}]}]`), Then: func(t *testing.T, w *e2e.Cluster) {
				e2e.EachFamily(func(family int) {
					for from, verdict := range map[string]lab.Verdict{"db": lab.Allowed, "api": lab.Allowed,
						"mon":  lab.Dropped,
						"copy": lab.Dropped} {
						w.Probe(t, from, lab.Packet{Proto: "udp", To: w.Hosts["web"].Addr(family), Port: 53,
							Size: 4000}, verdict)
					}
					w.Probe(t, "db", lab.Packet{Proto: "icmp", To: w.Hosts["web"].Addr(family), Size: 4000},
						lab.Dropped)
				})
			}},
		}},
	}
}

// betweenGuests sends, on every node, what belongs to no connection between two hosts that are attached like pods and
// are none, and between one of them and a pod.
func betweenGuests(t *testing.T, w *e2e.Cluster) {
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
		e2e.EachFamily(func(family int) {
			answers := func(from, to *lab.Host, wanted bool) bool {
				packet := e2e.Craft(t, from.Addr(family), to.Addr(family), 64, &layers.TCP{SrcPort: 41000, DstPort: 80,
					Seq: 1000, Ack: 1,
					SYN: true, ACK: true, Window: 1000}, gopacket.Payload("answer"))
				return e2e.Crosses(t, from, packet, to, "answer", wanted)
			}
			if !answers(guests[0], guests[1], true) {
				t.Errorf("IPv%d, %s: a packet between two hosts that are no pods was dropped\n%s", family, node,
					w.State())
			}
			if answers(guests[0], w.Hosts[pod], false) || answers(w.Hosts[pod], guests[0], false) {
				t.Errorf("IPv%d, %s: a packet to or from a pod passed that belongs to no connection\n%s", family, node,
					w.State())
			}
		})
	}
}
