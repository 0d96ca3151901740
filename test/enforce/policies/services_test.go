package policies

import (
	"net/netip"
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// serviceCases show what policies make of packets that a node translates, as for Services.
func serviceCases() []e2e.Case {
	return []e2e.Case{
		{Name: "S42_a_port_is_the_pods_after_translation_S39_and_so_is_the_peer", Steps: []e2e.Step{
			{About: "8080 of the Service is 80 of the pod", Do: e2e.Policy("shop/p",
				`{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}]}`),
				Then: func(t *testing.T, w *e2e.Cluster) {
					e2e.EachFamily(func(family int) {
						virtual := w.Service(t, "n1", family, 1, "tcp", 8080, "web", 80)
						w.Probe(t, "db", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Allowed)
						w.Probe(t, "n1", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Allowed)
					})
				}},
			{About: "the policy names the Service's port", Do: e2e.Policy("shop/p",
				`{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 8080}]}]}`),
				Then: func(t *testing.T, w *e2e.Cluster) {
					e2e.EachFamily(func(family int) {
						virtual := e2e.ServiceAddr(family, 1, 8080)
						w.Probe(t, "db", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()},
							lab.Dropped)
					})
				}},
			{About: "egress to the pod behind", Do: e2e.Do(e2e.Without("shop/p"), e2e.Policy("shop/q", `
podSelector: {matchLabels: {app: db}}
policyTypes: [Egress]
egress: [{to: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}]`)), Then: func(t *testing.T, w *e2e.Cluster) {
				e2e.EachFamily(func(family int) {
					virtual := e2e.ServiceAddr(family, 1, 8080)
					w.Probe(t, "db", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Allowed)
				})
			}},
			{About: "egress to the Service's address", Do: e2e.Policy("shop/q", `
podSelector: {matchLabels: {app: db}}
policyTypes: [Egress]
egress: [{to: [{ipBlock: {cidr: 10.96.0.0/16}}, {ipBlock: {cidr: "fd10:96::/112"}}]}]`),
				Then: func(t *testing.T, w *e2e.Cluster) {
					e2e.EachFamily(func(family int) {
						virtual := e2e.ServiceAddr(family, 1, 8080)
						w.Probe(t, "db", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()},
							lab.Dropped)
					})
				}},
		}},
		{Name: "S39_ingress_through_the_node_sees_the_clients_address", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{ipBlock: {cidr: $out4/32}}, {ipBlock: {cidr: $out6/128}}]}]`), Then: func(t *testing.T, w *e2e.Cluster) {
				e2e.EachFamily(func(family int) {
					// externalTrafficPolicy: Local
					port := netip.AddrPortFrom(w.Hosts["n1"].Addr(family), 30080)
					w.Translate(t, "n1", "tcp", port, netip.AddrPortFrom(w.Hosts["web"].Addr(family), 80))
					w.Probe(t, "out", lab.Packet{Proto: "tcp", To: port.Addr(), Port: port.Port()}, lab.Allowed)
					w.Probe(t, "n2", lab.Packet{Proto: "tcp", To: port.Addr(), Port: port.Port()}, lab.Dropped)
				})
			}},
		}},
		{Name: "S52_a_pod_reaches_itself_through_its_service", Steps: []e2e.Step{
			{Do: e2e.Policy("shop/p", e2e.CloseWeb), Want: e2e.Wants{"tcp 80": "-*>web -web>*"},
				Then: func(t *testing.T, w *e2e.Cluster) {
					e2e.EachFamily(func(family int) {
						virtual := w.Service(t, "n1", family, 2, "tcp", 8080, "web", 80)
						w.Probe(t, "web", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Allowed)
						w.Probe(t, "db", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Dropped)
					})
				}},
		}},
		{Name: "S52_S116_a_packet_that_claims_to_come_from_its_receiver", Steps: []e2e.Step{
			{About: "without a policy", Then: expectNoneSpoofed},
			{About: "with one", Do: e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}}`), Then: expectNoneSpoofed},
		}},
	}
}

// expectNoneSpoofed sends from db what claims to come from web, to web, on their node and from the other one.
func expectNoneSpoofed(t *testing.T, w *e2e.Cluster) {
	t.Helper()
	for _, d := range w.Daemons {
		d.Log.Expect("sends with an address that is not its own")
	}
	e2e.EachFamily(func(family int) {
		web := w.Hosts["web"].Addr(family)
		for _, from := range []string{"db", "api"} {
			packet := e2e.Craft(t, web, web, 64, e2e.UDP(53, "spoofed by "+from)...)
			if e2e.Crosses(t, w.Hosts[from], packet, w.Hosts["web"], "spoofed by "+from, false) {
				t.Errorf("IPv%d, from %s: it arrives\n%s", family, from, w.State())
			}
		}
	})
}
