package tiers

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// protocolCases show what the protocols of a rule match.
func protocolCases() []e2e.Case {
	const (
		closed = "-pods>web"
		fromDB = "-db>web"
	)
	deny := func(peers string, protocols ...string) e2e.Change {
		return e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone, e2e.Ingress("Deny", peers, protocols...)))
	}
	return []e2e.Case{
		{Name: "S85_no_protocols_mean_everything", Steps: []e2e.Step{
			{Do: deny(e2e.AllPods), Want: e2e.Wants{"tcp 80": closed, "tcp 9": closed, "udp 53": closed,
				"sctp 80": closed, "icmp": closed},
				Then: func(t *testing.T, w *e2e.Cluster) { gre(t, w, false) }},
			{About: "else", Do: deny(e2e.AllPods, `{tcp: {destinationPort: {number: 80}}}`),
				Want: e2e.Wants{"tcp 80": closed, "tcp 81": "", "udp 80": "",
					"sctp 80": "", "icmp": ""}, Then: func(t *testing.T, w *e2e.Cluster) { gre(t, w, true) }},
		}},
		{Name: "S85_peers_are_or_protocols_are_or_and_both_are_and", Steps: []e2e.Step{
			{About: "two peers", Do: deny(e2e.DBAlone + ", " + e2e.MonAlone), Want: e2e.Wants{"tcp 80": "-db,mon>web",
				"icmp": "-db,mon>web"}},
			{About: "two protocols", Do: deny(e2e.DBAlone, `{tcp: {destinationPort: {number: 80}}}`,
				`{udp: {destinationPort: {number: 53}}}`),
				Want: e2e.Wants{"tcp 80": fromDB, "udp 53": fromDB, "tcp 53": "", "udp 80": "", "icmp": "",
					"sctp 80": ""}},
			{About: "of two peers", Do: deny(e2e.DBAlone+", "+e2e.MonAlone, `{tcp: {destinationPort: {number: 80}}}`),
				Want: e2e.Wants{"tcp 80": "-db,mon>web", "tcp 81": "", "icmp": ""}},
			{About: "pods and networks", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				e2e.Egress("Deny", e2e.MonAlone+`, {networks: [$api4/32, "$out6/128"]}`,
					`{udp: {destinationPort: {number: 53}}}`))), Want: e2e.Wants{"udp 53 /4": "-web>mon,api",
				"udp 53 /6": "-web>mon,out", "tcp 80": "", "icmp": ""}},
			{About: "Accept of a port before Deny of everything", Do: e2e.ClusterPolicy("a",
				e2e.Admin("1", e2e.WebAlone, `ingress: [
{action: Accept, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 80}}}]}, {action: Deny, from: [{namespaces: {}}]}]`)),
				Want: e2e.Wants{"tcp 80": "", "tcp 81": closed, "udp 53": closed, "icmp": closed}},
		}},
		{Name: "S85_numbers_and_ranges", Steps: []e2e.Step{
			{About: "a range", Do: deny(e2e.AllPods, `{tcp: {destinationPort: {range: {start: 81, end: 83}}}}`),
				Want: e2e.Wants{"tcp 80": "", "tcp 81": closed, "tcp 82": closed, "tcp 83": closed, "tcp 84": "",
					"udp 82": ""}},
			{About: "of all ports", Do: deny(e2e.AllPods, `{tcp: {destinationPort: {range: {start: 1, end: 65535}}}}`),
				Want: e2e.Wants{"tcp 1": closed, "tcp 65535": closed, "udp 53": "", "icmp": ""}},
			{About: "UDP and SCTP", Do: deny(e2e.AllPods, `{udp: {destinationPort: {range: {start: 52, end: 53}}}}`,
				`{sctp: {destinationPort: {number: 80}}}`),
				Want: e2e.Wants{"udp 52": closed, "udp 53": closed, "udp 54": "", "sctp 80": closed, "sctp 81": "",
					"tcp 80": ""}},
			{About: "for egress", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
				e2e.Egress("Deny", `{namespaces: {}}, {networks: [$out4/32, "$out6/128"]}`,
					`{tcp: {destinationPort: {range: {start: 80, end: 81}}}}`, `{tcp: {destinationPort: {number: 90}}}`))),
				Want: e2e.Wants{"tcp 80": "-web>pods,out", "tcp 81": "-web>pods,out", "tcp 82": "",
					"tcp 90": "-web>pods,out", "udp 80": ""}},
		}},
		{Name: "S85_a_port_is_the_pods_after_translation", Steps: []e2e.Step{
			{About: "80 of the pod, which is 8080 of the Service and 30081 of the node",
				Do:   deny(e2e.AllPods, `{tcp: {destinationPort: {number: 80}}}`),
				Then: translated(lab.Dropped)},
			{About: "8080 and 30081 are other ports", Do: deny(e2e.AllPods, `{tcp: {destinationPort: {number: 8080}}}`,
				`{tcp: {destinationPort: {number: 30081}}}`),
				Then: translated(lab.Allowed)},
			{About: "egress to the pod behind", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.ShopPods,
				e2e.Egress("Deny", e2e.WebAlone, `{tcp: {destinationPort: {number: 80}}}`))),
				Then: translated(lab.Dropped)},
			{About: "egress to the Service's address", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.ShopPods,
				e2e.Egress("Deny", `{networks: [10.96.0.0/16, "fd10:96::/112"]}`))),
				Then: translated(lab.Allowed)},
		}},
		{Name: "S86_a_named_port_is_the_destination_pods_own", Steps: []e2e.Step{
			{About: "on ingress the subject's", Do: e2e.Do(e2e.Pod("shop/web", e2e.Port("http", 80, ""),
				e2e.Port("dns", 53, corev1.ProtocolUDP)), e2e.Pod("shop/db", e2e.Port("http", 8080, "")),
				e2e.ClusterPolicy("a", e2e.Admin("1", e2e.ShopPods, e2e.Ingress("Deny", e2e.AllPods,
					`{destinationNamedPort: http}`)))),
				Want: e2e.Wants{"tcp 80": "-pods>web", "tcp 8080": "-pods>db", "udp 80": "", "icmp": ""}},
			{About: "with its protocol", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.ShopPods,
				e2e.Ingress("Deny", e2e.AllPods, `{destinationNamedPort: dns}`))),
				Want: e2e.Wants{"udp 53": "-pods>web", "tcp 53": "", "tcp 80": ""}},
			{About: "no pod has it: the other entry stands", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.ShopPods,
				e2e.Ingress("Deny", e2e.AllPods, `{destinationNamedPort: none}`,
					`{udp: {destinationPort: {number: 53}}}`))), Want: e2e.Wants{"tcp 80": "", "udp 53": "-pods>shop"}},
			{About: "and alone it matches nothing", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.ShopPods,
				e2e.Ingress("Deny", e2e.AllPods, `{destinationNamedPort: none}`))),
				Want: e2e.Wants{"tcp 80": "", "udp 53": "", "icmp": ""}},
			{About: "on egress the destination's", Do: e2e.Do(e2e.Pod("ops/mon", e2e.Port("http", 80, "")),
				e2e.Pod("ops/copy", e2e.Port("http", 8080, "")),
				e2e.ClusterPolicy("a", e2e.Admin("1", e2e.ShopPods, e2e.Egress("Deny", e2e.AllPods,
					`{destinationNamedPort: http}`)))),
				Want: e2e.Wants{"tcp 80": "-shop>web,mon", "tcp 8080": "-shop>db,copy", "udp 80": ""}},
			{About: "of some pods", Do: e2e.ClusterPolicy("a", e2e.Admin("1", e2e.ShopPods,
				e2e.Egress("Deny", e2e.OpsPods, `{destinationNamedPort: http}`))),
				Want: e2e.Wants{"tcp 80": "-shop>mon", "tcp 8080": "-shop>copy"}},
			{About: "Accept of it before Baseline's Deny",
				Do: e2e.Do(e2e.ClusterPolicy("a", e2e.Admin("1", e2e.AllPods, e2e.Ingress("Accept", e2e.AllPods,
					`{destinationNamedPort: http}`))),
					e2e.ClusterPolicy("b", e2e.Baseline("1", e2e.AllPods, e2e.Ingress("Deny", e2e.AllPods)))),
				Want: e2e.Wants{"tcp 80": "-pods>pods +pods>web,mon", "tcp 8080": "-pods>pods +pods>db,copy",
					"icmp": "-pods>pods"}},
			{About: "the number changes by a new pod", Do: e2e.Pod("shop/web", e2e.UID("new"), e2e.NoPorts,
				e2e.Port("http", 81, "")),
				Want: e2e.Wants{"tcp 80": "-pods>pods +pods>mon", "tcp 81": "-pods>pods +pods>web"}},
		}},
	}
}

// gre sends what is of a protocol that the rules do not know from db to web.
func gre(t *testing.T, w *e2e.Cluster, arrives bool) {
	t.Helper()
	e2e.EachFamily(func(family int) {
		packet := e2e.Craft(t, w.Hosts["db"].Addr(family), w.Hosts["web"].Addr(family), 64,
			&layers.GRE{Protocol: layers.EthernetTypeIPv4}, gopacket.Payload("tunnelled"))
		if e2e.Crosses(t, w.Hosts["db"], packet, w.Hosts["web"], "tunnelled", arrives) != arrives {
			t.Errorf("IPv%d: GRE from db to web must arrive: %t\n%s", family, arrives, w.State())
		}
	})
}

// translated probes from db what the node translates to port 80 of web: port 8080 of a Service, and port 30081 of the
// node.
func translated(wanted lab.Verdict) func(t *testing.T, w *e2e.Cluster) {
	return func(t *testing.T, w *e2e.Cluster) {
		e2e.EachFamily(func(family int) {
			virtual := w.Service(t, "n1", family, 4, "tcp", 8080, "web", 80)
			node := netip.AddrPortFrom(w.Hosts["n1"].Addr(family), 30081)
			w.Translate(t, "n1", "tcp", node, netip.AddrPortFrom(w.Hosts["web"].Addr(family), 80))
			for _, to := range []netip.AddrPort{virtual, node} {
				w.Probe(t, "db", lab.Packet{Proto: "tcp", To: to.Addr(), Port: to.Port()}, wanted)
			}
		})
	}
}
