package wire

import (
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// broadcastCase is a frame that reaches more than one pod of a bridge, or pretends to.
type broadcastCase struct {
	name     string
	frame    []byte
	payload  string
	isolated bool // whether an isolated pod gets it
	free     bool // whether a free one does while another is isolated
}

// frameTo returns a frame with a UDP datagram.
func frameTo(t *testing.T, h *lab.Host, hardware net.HardwareAddr, from, to netip.Addr, source, port uint16,
	payload string) []byte {
	t.Helper()
	packet := e2e.Craft(t, from, to, 64, &layers.UDP{SrcPort: layers.UDPPort(source), DstPort: layers.UDPPort(port)},
		gopacket.Payload(payload))
	kind := []byte{0x08, 0x00}
	if to.Is6() {
		kind = []byte{0x86, 0xdd}
	}
	frame := append(append(net.HardwareAddr{}, hardware...), e2e.HardwareAddr(t, h)...)
	return append(append(frame, kind...), packet...)
}

// lastOf returns the broadcast address of an IPv4 network.
func lastOf(p netip.Prefix) netip.Addr {
	raw := p.Masked().Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		raw[bit/8] |= 0x80 >> (bit % 8)
	}
	return netip.AddrFrom4(raw)
}

// broadcasts returns ways to reach an isolated pod from a free one of its bridge, past any rule for the isolated pod's
// address. A port that no earlier call had keeps conversations apart.
func broadcasts(t *testing.T, w *e2e.Cluster, from, isolated, free *lab.Host, port uint16) []broadcastCase {
	t.Helper()
	everybody, none := netip.AddrFrom4([4]byte{255, 255, 255, 255}), netip.IPv4Unspecified()
	network := lastOf(w.Places[from].PodRanges()[0])
	own, forged := from.Addr4(), netip.MustParseAddr("192.0.2.77")
	all := net.HardwareAddr{255, 255, 255, 255, 255, 255}
	one := e2e.HardwareAddr(t, isolated)
	group := net.HardwareAddr{0x01, 0, 0x5e, 0, 0, 1}
	var cases []broadcastCase
	add := func(name string, to net.HardwareAddr, src, dst netip.Addr, source, destination uint16) *broadcastCase {
		payload := "broadcast: " + name
		cases = append(cases, broadcastCase{name: name, payload: payload, frame: frameTo(t, from, to, src, dst, source,
			destination, payload)})
		return &cases[len(cases)-1]
	}
	add("to everybody", all, own, everybody, port, 53)
	add("to the network", all, own, network, port, 53)
	add("to everybody, from a forged address", all, forged, everybody, port, 53)
	add("to the network, from a forged address", all, forged, network, port, 53)
	add("from no address to none", all, none, none, port, 53)
	add("to everybody, in the isolated pod's frame", one, own, everybody, port, 53)
	add("to the network, in the isolated pod's frame", one, forged, network, port, 53)
	add("from no address to none, in the isolated pod's frame", one, none, none, port, 53)
	add("to everybody, in a group's frame", group, own, everybody, port, 53)
	add("to the isolated pod, in a frame for all", all, own, isolated.Addr4(), port, 53)
	add("to the isolated pod, in a group's frame", group, own, isolated.Addr4(), port, 53)
	add("to the isolated pod's IPv6 address, in a frame for all", all, from.Addr6(), isolated.Addr6(), port, 53)
	add("to a free pod, in a frame for all", all, own, free.Addr4(), port, 53)
	add("to a free pod, in a group's frame", group, own, free.Addr4(), port, 53)
	add("to a free pod's IPv6 address, in a group's frame", group, from.Addr6(), free.Addr6(), port, 53)
	add("to a group, in a frame for all", all, own, netip.MustParseAddr("224.0.0.1"), port, 53)
	add("to an IPv6 group, in a frame for all", all, from.Addr6(), allNodes, port, 53)
	c := add("DHCP asks", all, none, everybody, 68, 67)
	c.isolated, c.free = true, true
	c = add("DHCP answers", all, own, everybody, 67, 68)
	c.isolated, c.free = true, true
	return cases
}

// expectBroadcast sends all that broadcasts returns.
func expectBroadcast(t *testing.T, w *e2e.Cluster, from, isolated, free string, closed bool) {
	t.Helper()
	for _, c := range broadcasts(t, w, w.Hosts[from], w.Hosts[isolated], w.Hosts[free], uint16(40000+w.Step)) {
		for to, arrives := range map[string]bool{isolated: c.isolated || !closed, free: c.free || !closed} {
			if to == free && string(c.frame[:6]) == string(e2e.HardwareAddr(t, w.Hosts[isolated])) {
				continue
			}
			if got := announces(t, w.Hosts[from], w.Hosts[to], []byte(c.payload), c.frame); got != arrives {
				t.Errorf("from %s, %s: arrives at %s: %t\n%s", from, c.name, to, got, w.State())
			}
		}
	}
}

// TestS71_BroadcastIsNoWayIn asks a node configured with the interface of its pods, and one with their range.
func TestS71_BroadcastIsNoWayIn(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{Attach: lab.Bridge})
		lan, err := w.Node("node1").AddUplink("lan", "up0")
		if err != nil {
			t.Fatal(err)
		}
		free := w.AddPod(t, "node2", "free", lab.PodConfig{})
		objects := func(changes ...e2e.Change) e2e.Change {
			return e2e.Do(append([]e2e.Change{e2e.Base(), e2e.Pod("shop/free", e2e.At("free"), e2e.On("node2"),
				e2e.Labelled("app=free"))}, changes...)...)
		}
		w.Begin(t, objects(), "--bind-sources=off")
		for _, d := range w.Daemons {
			d.AwaitOpen(t)
		}
		expect := func(t *testing.T, closed bool) {
			t.Helper()
			expectBroadcast(t, w, "db", "web", "mon", closed)
			expectBroadcast(t, w, "api", "copy", free.Name(), closed)
		}
		t.Run("S71_open_without_a_policy", func(t *testing.T) { expect(t, false) })
		denyIngress := `{podSelector: {matchLabels: {app: web}}}`
		w.Apply(t, w.Objects(objects(e2e.Policy("shop/p", denyIngress), e2e.Policy("ops/p", denyIngress))))
		t.Run("S71_dropped_while_a_pod_is_isolated_S58_and_DHCP_is_not", func(t *testing.T) { expect(t, true) })
		t.Run("S58_what_comes_by_an_uplink_is_no_pods", func(t *testing.T) {
			frame := frameTo(t, lan.Host, net.HardwareAddr{255, 255, 255, 255, 255, 255}, lan.Addr4(),
				netip.AddrFrom4([4]byte{255, 255, 255, 255}), 40000, 53, "from the uplink")
			if !announces(t, lan.Host, w.Hosts["web"], []byte("from the uplink"), frame) {
				t.Errorf("a broadcast of a host behind an uplink did not arrive\n%s", w.State())
			}
		})
		w.Apply(t, w.Objects(objects(e2e.Policy("shop/p",
			`{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}`))))
		t.Run("S71_isolation_for_egress_is_none_for_ingress", func(t *testing.T) { expect(t, false) })
	})
}

// TestS71_BroadcastIsNoWayInWithoutMulticast checks that neither --allow-mcast nor the fail-closed filter changes the
// verdicts of broadcast.
func TestS71_BroadcastIsNoWayInWithoutMulticast(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Do(e2e.Base(),
			e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}}`)), "--allow-mcast=false", "--bind-sources=off",
			"--fail-closed=never")
		expectBroadcast(t, w, "db", "web", "mon", true)
	})
}
