package enforce

import (
	"net/netip"
	"testing"

	"github.com/weave-npc/weave-npc/test/lab"
)

// serviceCases show what policies make of packets that a node translates, as for Services.
func serviceCases() []testCase {
	return []testCase{
		{name: "S42_a_port_is_the_pods_after_translation_S39_and_so_is_the_peer", steps: []step{
			{about: "8080 of the Service is 80 of the pod", do: policy("shop/p",
				`{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 80}]}]}`), then: func(t *testing.T, w *harness) {
				families(func(family int) {
					virtual := w.service(t, "n1", family, 1, "tcp", 8080, "web", 80)
					w.probe(t, "db", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Allowed)
					w.probe(t, "n1", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Allowed)
				})
			}},
			{about: "the policy names the Service's port", do: policy("shop/p",
				`{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 8080}]}]}`),
				then: func(t *testing.T, w *harness) {
					families(func(family int) {
						virtual := serviceAddr(family, 1, 8080)
						w.probe(t, "db", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Dropped)
					})
				}},
			{about: "egress to the pod behind", do: do(without("shop/p"), policy("shop/q", `
podSelector: {matchLabels: {app: db}}
policyTypes: [Egress]
egress: [{to: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}]`)), then: func(t *testing.T, w *harness) {
				families(func(family int) {
					virtual := serviceAddr(family, 1, 8080)
					w.probe(t, "db", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Allowed)
				})
			}},
			{about: "egress to the Service's address", do: policy("shop/q", `
podSelector: {matchLabels: {app: db}}
policyTypes: [Egress]
egress: [{to: [{ipBlock: {cidr: 10.96.0.0/16}}, {ipBlock: {cidr: "fd10:96::/112"}}]}]`),
				then: func(t *testing.T, w *harness) {
					families(func(family int) {
						virtual := serviceAddr(family, 1, 8080)
						w.probe(t, "db", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Dropped)
					})
				}},
		}},
		{name: "S39_ingress_through_the_node_sees_the_clients_address", steps: []step{
			{do: policy("shop/p", `
podSelector: {matchLabels: {app: web}}
ingress: [{from: [{ipBlock: {cidr: $out4/32}}, {ipBlock: {cidr: $out6/128}}]}]`), then: func(t *testing.T, w *harness) {
				families(func(family int) {
					// externalTrafficPolicy: Local
					port := netip.AddrPortFrom(w.hosts["n1"].Addr(family), 30080)
					w.translate(t, "n1", "tcp", port, netip.AddrPortFrom(w.hosts["web"].Addr(family), 80))
					w.probe(t, "out", lab.Packet{Proto: "tcp", To: port.Addr(), Port: port.Port()}, lab.Allowed)
					w.probe(t, "n2", lab.Packet{Proto: "tcp", To: port.Addr(), Port: port.Port()}, lab.Dropped)
				})
			}},
		}},
		{name: "S52_a_pod_reaches_itself_through_its_service", steps: []step{
			{do: policy("shop/p", closeWeb), want: wants{"tcp 80": "-*>web -web>*"}, then: func(t *testing.T, w *harness) {
				families(func(family int) {
					virtual := w.service(t, "n1", family, 2, "tcp", 8080, "web", 80)
					w.probe(t, "web", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Allowed)
					w.probe(t, "db", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, lab.Dropped)
				})
			}},
		}},
		{name: "S52_a_packet_that_claims_to_come_from_its_receiver", steps: []step{
			{about: "arrives without a policy", then: func(t *testing.T, w *harness) { spoofed(t, w, true) }},
			{about: "and does not with one", do: policy("shop/p", `{podSelector: {matchLabels: {app: web}}}`),
				then: func(t *testing.T, w *harness) { spoofed(t, w, false) }},
		}},
	}
}

// serviceAddr returns the virtual address of a service.
func serviceAddr(family int, number byte, port uint16) netip.AddrPort {
	addr := netip.AddrFrom4([4]byte{10, 96, 0, number})
	if family == 6 {
		addr = netip.AddrFrom16([16]byte{0xfd, 0x10, 0, 0x96, 15: number})
	}
	return netip.AddrPortFrom(addr, port)
}

// service makes a node translate a virtual address to a pod's.
func (w *harness) service(t *testing.T, node string, family int, number byte, proto string, port uint16, pod string,
	podPort uint16) netip.AddrPort {
	t.Helper()
	virtual := serviceAddr(family, number, port)
	w.translate(t, node, proto, virtual, netip.AddrPortFrom(w.hosts[pod].Addr(family), podPort))
	return virtual
}

func (w *harness) translate(t *testing.T, node, proto string, virtual, pod netip.AddrPort) {
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
func spoofed(t *testing.T, w *harness, wanted bool) {
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
