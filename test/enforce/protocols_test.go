package enforce

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/lab"
)

// protocolCases show what the protocols of a rule match.
func protocolCases() []testCase {
	const (
		closed = "-pods>web"
		fromDB = "-db>web"
	)
	deny := func(peers string, protocols ...string) change {
		return clusterPolicy("a", admin("1", webAlone, ingress("Deny", peers, protocols...)))
	}
	return []testCase{
		{name: "S85_no_protocols_mean_everything", steps: []step{
			{do: deny(allPods), want: wants{"tcp 80": closed, "tcp 9": closed, "udp 53": closed, "sctp 80": closed, "icmp": closed},
				then: func(t *testing.T, w *harness) { gre(t, w, false) }},
			{about: "else", do: deny(allPods, `{tcp: {destinationPort: {number: 80}}}`), want: wants{"tcp 80": closed, "tcp 81": "", "udp 80": "",
				"sctp 80": "", "icmp": ""}, then: func(t *testing.T, w *harness) { gre(t, w, true) }},
		}},
		{name: "S85_peers_are_or_protocols_are_or_and_both_are_and", steps: []step{
			{about: "two peers", do: deny(dbAlone + ", " + monAlone), want: wants{"tcp 80": "-db,mon>web", "icmp": "-db,mon>web"}},
			{about: "two protocols", do: deny(dbAlone, `{tcp: {destinationPort: {number: 80}}}`, `{udp: {destinationPort: {number: 53}}}`),
				want: wants{"tcp 80": fromDB, "udp 53": fromDB, "tcp 53": "", "udp 80": "", "icmp": "", "sctp 80": ""}},
			{about: "of two peers", do: deny(dbAlone+", "+monAlone, `{tcp: {destinationPort: {number: 80}}}`),
				want: wants{"tcp 80": "-db,mon>web", "tcp 81": "", "icmp": ""}},
			{about: "pods and networks", do: clusterPolicy("a", admin("1", webAlone, egress("Deny", monAlone+`, {networks: [$api4/32, "$out6/128"]}`,
				`{udp: {destinationPort: {number: 53}}}`))), want: wants{"udp 53 /4": "-web>mon,api", "udp 53 /6": "-web>mon,out", "tcp 80": "", "icmp": ""}},
			{about: "Accept of a port before Deny of everything", do: clusterPolicy("a", admin("1", webAlone, `ingress: [
{action: Accept, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 80}}}]}, {action: Deny, from: [{namespaces: {}}]}]`)),
				want: wants{"tcp 80": "", "tcp 81": closed, "udp 53": closed, "icmp": closed}},
		}},
		{name: "S85_numbers_and_ranges", steps: []step{
			{about: "a range", do: deny(allPods, `{tcp: {destinationPort: {range: {start: 81, end: 83}}}}`),
				want: wants{"tcp 80": "", "tcp 81": closed, "tcp 82": closed, "tcp 83": closed, "tcp 84": "", "udp 82": ""}},
			{about: "of all ports", do: deny(allPods, `{tcp: {destinationPort: {range: {start: 1, end: 65535}}}}`),
				want: wants{"tcp 1": closed, "tcp 65535": closed, "udp 53": "", "icmp": ""}},
			{about: "UDP and SCTP", do: deny(allPods, `{udp: {destinationPort: {range: {start: 52, end: 53}}}}`, `{sctp: {destinationPort: {number: 80}}}`),
				want: wants{"udp 52": closed, "udp 53": closed, "udp 54": "", "sctp 80": closed, "sctp 81": "", "tcp 80": ""}},
			{about: "for egress", do: clusterPolicy("a", admin("1", webAlone, egress("Deny", `{namespaces: {}}, {networks: [$out4/32, "$out6/128"]}`,
				`{tcp: {destinationPort: {range: {start: 80, end: 81}}}}`, `{tcp: {destinationPort: {number: 90}}}`))),
				want: wants{"tcp 80": "-web>pods,out", "tcp 81": "-web>pods,out", "tcp 82": "", "tcp 90": "-web>pods,out", "udp 80": ""}},
		}},
		{name: "S85_a_port_is_the_pods_after_translation", steps: []step{
			{about: "80 of the pod, which is 8080 of the Service and 30081 of the node", do: deny(allPods, `{tcp: {destinationPort: {number: 80}}}`),
				then: translated(lab.Dropped)},
			{about: "8080 and 30081 are other ports", do: deny(allPods, `{tcp: {destinationPort: {number: 8080}}}`, `{tcp: {destinationPort: {number: 30081}}}`),
				then: translated(lab.Allowed)},
			{about: "egress to the pod behind", do: clusterPolicy("a", admin("1", shopPods, egress("Deny", webAlone, `{tcp: {destinationPort: {number: 80}}}`))),
				then: translated(lab.Dropped)},
			{about: "egress to the Service's address", do: clusterPolicy("a", admin("1", shopPods, egress("Deny", `{networks: [10.96.0.0/16, "fd10:96::/112"]}`))),
				then: translated(lab.Allowed)},
		}},
		{name: "S86_a_named_port_is_the_destination_pods_own", steps: []step{
			{about: "on ingress the subject's", do: do(pod("shop/web", port("http", 80, ""), port("dns", 53, corev1.ProtocolUDP)), pod("shop/db", port("http", 8080, "")),
				clusterPolicy("a", admin("1", shopPods, ingress("Deny", allPods, `{destinationNamedPort: http}`)))),
				want: wants{"tcp 80": "-pods>web", "tcp 8080": "-pods>db", "udp 80": "", "icmp": ""}},
			{about: "with its protocol", do: clusterPolicy("a", admin("1", shopPods, ingress("Deny", allPods, `{destinationNamedPort: dns}`))),
				want: wants{"udp 53": "-pods>web", "tcp 53": "", "tcp 80": ""}},
			{about: "no pod has it: the other entry stands", do: clusterPolicy("a", admin("1", shopPods,
				ingress("Deny", allPods, `{destinationNamedPort: none}`, `{udp: {destinationPort: {number: 53}}}`))), want: wants{"tcp 80": "", "udp 53": "-pods>shop"}},
			{about: "and alone it matches nothing", do: clusterPolicy("a", admin("1", shopPods, ingress("Deny", allPods, `{destinationNamedPort: none}`))),
				want: wants{"tcp 80": "", "udp 53": "", "icmp": ""}},
			{about: "on egress the destination's", do: do(pod("ops/mon", port("http", 80, "")), pod("ops/copy", port("http", 8080, "")),
				clusterPolicy("a", admin("1", shopPods, egress("Deny", allPods, `{destinationNamedPort: http}`)))),
				want: wants{"tcp 80": "-shop>web,mon", "tcp 8080": "-shop>db,copy", "udp 80": ""}},
			{about: "of some pods", do: clusterPolicy("a", admin("1", shopPods, egress("Deny", opsPods, `{destinationNamedPort: http}`))),
				want: wants{"tcp 80": "-shop>mon", "tcp 8080": "-shop>copy"}},
			{about: "Accept of it before Baseline's Deny", do: do(clusterPolicy("a", admin("1", allPods, ingress("Accept", allPods, `{destinationNamedPort: http}`))),
				clusterPolicy("b", baseline("1", allPods, ingress("Deny", allPods)))),
				want: wants{"tcp 80": "-pods>pods +pods>web,mon", "tcp 8080": "-pods>pods +pods>db,copy", "icmp": "-pods>pods"}},
			{about: "the number changes by a new pod", do: pod("shop/web", uid("new"), noPorts, port("http", 81, "")),
				want: wants{"tcp 80": "-pods>pods +pods>mon", "tcp 81": "-pods>pods +pods>web"}},
		}},
	}
}

// gre sends what is of a protocol that the rules do not know from db to web.
func gre(t *testing.T, w *harness, arrives bool) {
	t.Helper()
	families(func(family int) {
		packet := craft(t, w.hosts["db"].Addr(family), w.hosts["web"].Addr(family), 64, &layers.GRE{Protocol: layers.EthernetTypeIPv4}, gopacket.Payload("tunnelled"))
		if crosses(t, w.hosts["db"], packet, w.hosts["web"], "tunnelled") != arrives {
			t.Errorf("IPv%d: GRE from db to web must arrive: %t\n%s", family, arrives, w.state())
		}
	})
}

// translated probes from db what the node translates to port 80 of web: port 8080 of a Service, and port 30081 of the
// node.
func translated(wanted lab.Verdict) func(t *testing.T, w *harness) {
	return func(t *testing.T, w *harness) {
		families(func(family int) {
			virtual := w.service(t, "n1", family, 4, "tcp", 8080, "web", 80)
			node := netip.AddrPortFrom(w.hosts["n1"].Addr(family), 30081)
			w.translate(t, "n1", "tcp", node, netip.AddrPortFrom(w.hosts["web"].Addr(family), 80))
			for _, to := range []netip.AddrPort{virtual, node} {
				w.probe(t, "db", lab.Packet{Proto: "tcp", To: to.Addr(), Port: to.Port()}, wanted)
			}
		})
	}
}
