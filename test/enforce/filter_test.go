package enforce

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weave-npc/weave-npc/test/lab"
)

// lateIsIsolated returns a pod of the first node that has no address yet, and policies that isolate it.
func lateIsIsolated() change {
	return do(pod("shop/late", on("node1"), labelled("app=late")),
		policy("shop/late", `{podSelector: {matchLabels: {app: late}}, policyTypes: [Ingress, Egress]}`))
}

// TestS59_TheFilterDropsWhatIsBehindTheInterface has nodes whose ranges are not those of their pods, as with weave-net,
// and a host behind an uplink of the first one's bridge.
func TestS59_TheFilterDropsWhatIsBehindTheInterface(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := newHarness(t, backend, lab.Config{})
		uplink, err := w.Node("node1").AddUplink("lan", "up0")
		if err != nil {
			t.Fatal(err)
		}
		w.hosts["lan"] = uplink.Host
		serve(t, uplink.Host)
		w.begin(t, base(), "--pod-cidr", "10.244.0.0/16,fd10:244::/64")
		w.daemons[0].log.expect("fail-closed filter closed for long")
		w.expect(t, wants{"tcp 80": ""})
		w.expectRouted(t, true)

		o := w.objects(do(base(), lateIsIsolated()))
		w.apply(t, o)
		late := w.addPod(t, "node1", "late", lab.PodConfig{})
		serve(t, late.Host)
		closed := wants{"tcp 80": "-*>late -late>*", "udp 53": "-*>late -late>*", "icmp": "-*>late -late>*"}
		t.Run("S59_an_unknown_address_is_closed_S60_and_no_known_one", func(t *testing.T) { w.expect(t, closed) })
		w.daemons[0].awaitLine(t, 0, "unknown addresses behind cni0")
		t.Run("S58_a_host_behind_an_uplink_is_no_pod", func(t *testing.T) { w.expectRouted(t, true) })
		t.Run("S56_multicast_passes", func(t *testing.T) { multicast(t, w, true) })
		t.Run("S58_DHCP_passes", func(t *testing.T) {
			w.dhcp(t, "late", "db")
			w.dhcp(t, "late", "lan")
			w.dhcp(t, "web", "lan")
		})
		t.Run("S59_a_known_pod_behind_the_uplink_is_none_of_this_node", func(t *testing.T) {
			pod("ops/far", on("node3"), at("lan"), labelled("app=far"))(w, o)
			w.apply(t, o)
			w.expect(t, closed)
			w.expectRouted(t, true)
		})
		pod("shop/late", at("late"), labelled("app=late"))(w, o)
		w.apply(t, o)
		t.Run("S59_its_address_is_known", func(t *testing.T) {
			w.expect(t, closed)
			w.dhcp(t, "late", "lan")
		})
	})
}

// expectRouted expects that the host behind the uplink is reached by way of its node from outside, and reaches hosts
// there.
func (w *harness) expectRouted(t *testing.T, reached bool) {
	t.Helper()
	wanted := map[bool]lab.Verdict{true: lab.Allowed, false: lab.Dropped}[reached]
	families(func(family int) {
		w.probe(t, "lan", lab.Packet{Proto: "tcp", To: w.hosts["out"].Addr(family), Port: 80}, wanted)
		w.probe(t, "out", lab.Packet{Proto: "tcp", To: w.hosts["lan"].Addr(family), Port: 80}, wanted)
	})
}

// dhcp has a client ask for an address, or ask again for the one that it has, and a server answer.
func (w *harness) dhcp(t *testing.T, client, server string) {
	t.Helper()
	c, s := w.hosts[client], w.hosts[server]
	send := func(from, to *lab.Host, payload string, destination []byte, src, dst netip.Addr, sport, dport uint16) {
		t.Helper()
		packet := craft(t, src, dst, 64, &layers.UDP{SrcPort: layers.UDPPort(sport), DstPort: layers.UDPPort(dport)}, gopacket.Payload(payload))
		w.expectFrame(t, from, to, frameOf(destination, hardwareAddrOf(t, from), packet), payload)
	}
	all4, any4 := netip.AddrFrom4([4]byte{255, 255, 255, 255}), netip.IPv4Unspecified()
	everybody := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	send(c, s, "discover", everybody, any4, all4, 68, 67)
	send(s, c, "offer", hardwareAddrOf(t, c), s.Addr4(), c.Addr4(), 67, 68)
	send(s, c, "broadcast offer", everybody, s.Addr4(), all4, 67, 68)
	send(c, s, "rebind", everybody, c.Addr4(), all4, 68, 67)
	linkLocal := func(h *lab.Host) netip.Addr {
		a, err := h.LinkLocal("eth0")
		if err != nil {
			t.Fatal(err)
		}
		return a.WithZone("")
	}
	servers := netip.MustParseAddr("ff02::1:2")
	send(c, s, "solicit", []byte{0x33, 0x33, 0, 1, 0, 2}, linkLocal(c), servers, 546, 547)
	send(s, c, "advertise", hardwareAddrOf(t, c), linkLocal(s), linkLocal(c), 547, 546)
}

// frameOf returns an IP packet in a frame.
func frameOf(to, from, packet []byte) []byte {
	kind := []byte{0x08, 0x00}
	if packet[0]>>4 == 6 {
		kind = []byte{0x86, 0xdd}
	}
	return append(append(append(append([]byte(nil), to...), from...), kind...), packet...)
}

// expectFrame sends a frame and expects it at another host.
func (w *harness) expectFrame(t *testing.T, from, to *lab.Host, frame []byte, payload string) {
	t.Helper()
	capture, err := to.Capture("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer capture.Close()
	if err := from.SendFrame("eth0", frame); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), converged)
	defer cancel()
	if _, err := capture.Await(ctx, func(f lab.Frame) bool { return !f.Outgoing && strings.HasSuffix(string(f.IP()), payload) }); err != nil {
		t.Errorf("%s from %s to %s: %v\n%s", payload, from, to, err, w.state())
	}
}
