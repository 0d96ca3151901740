package wire

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// icmpError returns an ICMP error that quotes a datagram: its port is unreachable, or it is too big for 600 bytes.
func icmpError(t *testing.T, from, to netip.Addr, quoted []byte, tooBig bool) []byte {
	t.Helper()
	if from.Is4() {
		header := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable,
			layers.ICMPv4CodePort)}
		if tooBig {
			header.TypeCode = layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable,
				layers.ICMPv4CodeFragmentationNeeded)
			header.Seq = 600
		}
		return e2e.Craft(t, from, to, 64, header, gopacket.Payload(quoted))
	}
	header, mtu := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeDestinationUnreachable,
		layers.ICMPv6CodePortUnreachable)}, []byte{0, 0, 0, 0}
	if tooBig {
		header.TypeCode, mtu = layers.CreateICMPv6TypeCode(layers.ICMPv6TypePacketTooBig, 0), []byte{0, 0, 5, 0}
	}
	return e2e.Craft(t, from, to, 64, header, gopacket.Payload(append(mtu, quoted...)))
}

// withOptions returns a packet with more in front of its ICMP: options in an IPv4 header, an extension header of IPv6.
func withOptions(packet []byte) []byte {
	const noOperation, destinationOptions = 1, 60
	if packet[0]>>4 == 4 {
		packet = slices.Insert(slices.Clone(packet), 20, noOperation, noOperation, noOperation, 0)
		packet[0]++
		return packet
	}
	packet = slices.Insert(slices.Clone(packet), 40, packet[6], 0, 1, 4, 0, 0, 0, 0)
	packet[5] += 8
	packet[6] = destinationOptions
	return packet
}

// talk is a UDP flow between two hosts.
type talk struct {
	from, to string
	port     uint16
}

// quoted returns a datagram of the flow, which ends in a text.
func (f talk) quoted(t *testing.T, w *e2e.Cluster, family int, text string) []byte {
	t.Helper()
	return e2e.Craft(t, w.Hosts[f.from].Addr(family), w.Hosts[f.to].Addr(family), 64,
		&layers.UDP{SrcPort: layers.UDPPort(f.port), DstPort: 53}, gopacket.Payload(text))
}

// expectError has a host send an error about a flow to the flow's sender, as from an address. It opens the flow before:
// conntrack knows it for 30 seconds.
func expectError(t *testing.T, w *e2e.Cluster, by *lab.Host, from netip.Addr, f talk, change func([]byte) []byte, wanted bool) {
	t.Helper()
	family := 6
	if from.Is4() {
		family = 4
	}
	sender := w.Hosts[f.from]
	for text, tooBig := range map[string]bool{"port unreachable": false, "too big": true} {
		w.Probe(t, f.from, lab.Packet{Proto: "udp", To: w.Hosts[f.to].Addr(family), Port: 53, FromPort: f.port}, lab.Allowed)
		packet := icmpError(t, from, sender.Addr(family), f.quoted(t, w, family, text), tooBig)
		if change != nil {
			packet = change(packet)
		}
		if got := e2e.Crosses(t, by, packet, sender, text, wanted); got != wanted {
			t.Errorf("from %s, %s, about a packet to %s: arrives at %s: %t\n%s", from, text, f.to, f.from, got, w.State())
		}
	}
}

// TestS106_AnErrorIsOfTheOneThatItsPacketWasSentTo forges ICMP errors from pods, and sends honest ones.
func TestS106_AnErrorIsOfTheOneThatItsPacketWasSentTo(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for name, attach := range map[string]lab.Attach{"bridge": lab.Bridge, "routed": lab.Routed} {
			if attach == lab.Routed && backend == lab.NFT {
				continue
			}
			t.Run(name, func(t *testing.T) {
				w := e2e.New(t, backend, lab.Config{Attach: attach})
				w.Begin(t, e2e.Do(e2e.Base(), e2e.Policy("shop/db", `
podSelector: {matchLabels: {app: db}}
policyTypes: [Ingress, Egress]
ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: mon}}}]}]`)))
				errorsOfPods(t, w)
			})
		}
	})
}

// errorsOfPods sends errors where db is isolated, and only mon may open connections to it.
func errorsOfPods(t *testing.T, w *e2e.Cluster) {
	outward, inward, across := talk{"web", "out", 47000}, talk{"mon", "db", 47001}, talk{"web", "api", 47002}
	db, out := w.Hosts["db"], w.Hosts["out"]
	e2e.EachFamily(func(family int) {
		routers := map[int]netip.Addr{4: netip.MustParseAddr("198.51.100.7"), 6: netip.MustParseAddr("2001:db8::7")}
		t.Run("S106_about_packets_to_others", func(t *testing.T) {
			for _, f := range []talk{outward, across, {"mon", "out", 47003}} {
				expectError(t, w, db, db.Addr(family), f, nil, false)
			}
			expectError(t, w, db, db.Addr(family), outward, withOptions, false)
			expectError(t, w, w.Hosts["copy"], w.Hosts["copy"].Addr(family), outward, nil, false)
		})
		t.Run("S53_about_packets_to_themselves", func(t *testing.T) {
			expectError(t, w, db, db.Addr(family), inward, nil, true)
			expectError(t, w, db, db.Addr(family), inward, withOptions, family == 4)
			expectError(t, w, w.Hosts["api"], w.Hosts["api"].Addr(family), across, nil, true)
		})
		t.Run("S53_of_hosts_and_routers_that_are_no_pods", func(t *testing.T) {
			expectError(t, w, out, out.Addr(family), outward, nil, true)
			expectError(t, w, out, routers[family], outward, nil, true)
		})
		t.Run("S53_of_a_closed_port_behind_a_service", func(t *testing.T) {
			for i, c := range []struct{ from, to string }{{"mon", "db"}, {"web", "api"}, {"web", "web"}} {
				virtual := w.Service(t, "n1", family, byte(20+i), "udp", 9009, c.to, 9)
				w.Probe(t, c.from, lab.Packet{Proto: "udp", To: virtual.Addr(), Port: virtual.Port()}, lab.Refused)
			}
		})
	})
}
