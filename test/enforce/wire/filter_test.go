package wire

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// lateIsIsolated returns a pod of the first node that has no address yet, and policies that isolate it.
func lateIsIsolated() e2e.Change {
	return e2e.Do(e2e.Pod("shop/late", e2e.On("node1"), e2e.Labelled("app=late")),
		e2e.Policy("shop/late", `{podSelector: {matchLabels: {app: late}}, policyTypes: [Ingress, Egress]}`))
}

// TestS59_TheFilterDropsWhatIsBehindTheInterface has nodes whose ranges are not those of their pods, as with weave-net,
// and a host behind an uplink of the first one's bridge.
func TestS59_TheFilterDropsWhatIsBehindTheInterface(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		uplink, err := w.Node("node1").AddUplink("lan", "up0")
		if err != nil {
			t.Fatal(err)
		}
		w.Hosts["lan"] = uplink.Host
		e2e.Serve(t, uplink.Host)
		w.Begin(t, e2e.Base(), "--pod-cidr", "10.244.0.0/16,fd10:244::/64")
		w.Daemons[0].Log.Expect("fail-closed filter closed for long")
		w.Expect(t, e2e.Wants{"tcp 80": ""})
		expectRouted(t, w, true)

		o := w.Objects(e2e.Do(e2e.Base(), lateIsIsolated()))
		w.Apply(t, o)
		late := w.AddPod(t, "node1", "late", lab.PodConfig{})
		e2e.Serve(t, late.Host)
		closed := e2e.Wants{"tcp 80": "-*>late -late>*", "udp 53": "-*>late -late>*", "icmp": "-*>late -late>*"}
		t.Run("S59_an_unknown_address_is_closed_S60_and_no_known_one", func(t *testing.T) { w.Expect(t, closed) })
		w.Daemons[0].AwaitLine(t, 0, "unknown addresses behind cni0")
		t.Run("S58_a_host_behind_an_uplink_is_no_pod", func(t *testing.T) { expectRouted(t, w, true) })
		t.Run("S56_multicast_passes", func(t *testing.T) { e2e.Multicast(t, w, true) })
		t.Run("S58_DHCP_passes", func(t *testing.T) {
			dhcp(t, w, "late", "db")
			dhcp(t, w, "late", "lan")
			dhcp(t, w, "web", "lan")
		})
		t.Run("S59_a_known_pod_behind_the_uplink_is_none_of_this_node", func(t *testing.T) {
			e2e.Pod("ops/far", e2e.On("node3"), e2e.At("lan"), e2e.Labelled("app=far"))(w, o)
			w.Apply(t, o)
			w.Expect(t, closed)
			expectRouted(t, w, true)
		})
		e2e.Pod("shop/late", e2e.At("late"), e2e.Labelled("app=late"))(w, o)
		w.Apply(t, o)
		t.Run("S59_its_address_is_known", func(t *testing.T) {
			w.Expect(t, closed)
			dhcp(t, w, "late", "lan")
		})
	})
}

// expectRouted expects that the host behind the uplink is reached by way of its node from outside, and reaches hosts
// there.
func expectRouted(t *testing.T, w *e2e.Cluster, reached bool) {
	t.Helper()
	wanted := map[bool]lab.Verdict{true: lab.Allowed, false: lab.Dropped}[reached]
	e2e.EachFamily(func(family int) {
		w.Probe(t, "lan", lab.Packet{Proto: "tcp", To: w.Hosts["out"].Addr(family), Port: 80}, wanted)
		w.Probe(t, "out", lab.Packet{Proto: "tcp", To: w.Hosts["lan"].Addr(family), Port: 80}, wanted)
	})
}

// dhcp has a client ask for an address, or ask again for the one that it has, and a server answer.
func dhcp(t *testing.T, w *e2e.Cluster, client, server string) {
	t.Helper()
	c, s := w.Hosts[client], w.Hosts[server]
	send := func(from, to *lab.Host, payload string, destination []byte, src, dst netip.Addr, sport, dport uint16) {
		t.Helper()
		packet := e2e.Craft(t, src, dst, 64, &layers.UDP{SrcPort: layers.UDPPort(sport),
			DstPort: layers.UDPPort(dport)}, gopacket.Payload(payload))
		expectFrame(t, w, from, to, frameOf(destination, e2e.HardwareAddr(t, from), packet), payload)
	}
	all4, any4 := netip.AddrFrom4([4]byte{255, 255, 255, 255}), netip.IPv4Unspecified()
	everybody := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	send(c, s, "discover", everybody, any4, all4, 68, 67)
	send(s, c, "offer", e2e.HardwareAddr(t, c), s.Addr4(), c.Addr4(), 67, 68)
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
	send(s, c, "advertise", e2e.HardwareAddr(t, c), linkLocal(s), linkLocal(c), 547, 546)
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
func expectFrame(t *testing.T, w *e2e.Cluster, from, to *lab.Host, frame []byte, payload string) {
	t.Helper()
	capture, err := to.Capture("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer capture.Close()
	if err := from.SendFrame("eth0", frame); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Converged)
	defer cancel()
	if _, err := capture.Await(ctx, func(f lab.Frame) bool {
		return !f.Outgoing && strings.HasSuffix(string(f.IP()),
			payload)
	}); err != nil {
		t.Errorf("%s from %s to %s: %v\n%s", payload, from, to, err, w.State())
	}
}
