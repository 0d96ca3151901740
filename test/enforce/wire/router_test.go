package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// advertised is the network of the advertisements that these tests send: no other host has addresses in it.
const advertised = "2001:db8:5ec:"

var allNodes = netip.MustParseAddr("ff02::1")

// fromRouter returns an ICMPv6 message that only routers send, with its checksum, from a host's link-local address to
// all nodes. Number is the last part of the advertised network.
func fromRouter(t *testing.T, h *lab.Host, interfaceName string, kind uint8, number uint16) (from netip.Addr,
	message []byte) {
	t.Helper()
	from, err := h.LinkLocal(interfaceName)
	if err != nil {
		t.Fatal(err)
	}
	from = from.WithZone("")
	body := []byte{64, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 0, // hop limit, flags, lifetime 100 s, times
		3, 4, 64, 0xc0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0} // a prefix of 64 bits, on the link and autonomous, for 256 s
	network := netip.MustParseAddr(advertised + ":").As16()
	binary.BigEndian.PutUint16(network[6:], number)
	body = append(body, network[:]...)
	if kind == 137 { // the destination is its own target: it is on the link
		body = append(append(make([]byte, 4), network[:]...), network[:]...)
	}
	packet := e2e.Craft(t, from, allNodes, 255, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)},
		gopacket.Payload(body))
	return from, packet[40:]
}

// disguises returns ways to send an ICMPv6 message, each as IPv6 packets. Behind some of them the kernel takes no
// message of a router, and they must not pass nevertheless: not every kernel may be as strict.
func disguises(from netip.Addr, message []byte) map[string][][]byte {
	const fragment, hopByHop, destination = 44, 0, 60
	ip := func(next byte, parts ...[]byte) []byte {
		payload := bytes.Join(parts, nil)
		p := []byte{0x60, 0, 0, 0, 0, 0, next, 255}
		binary.BigEndian.PutUint16(p[4:], uint16(len(payload)))
		to := allNodes.As16()
		source := from.As16()
		return bytes.Join([][]byte{p, source[:], to[:], payload}, nil)
	}
	options := func(next byte) []byte { return []byte{next, 0, 1, 4, 0, 0, 0, 0} } // padding
	piece := func(next byte, offset int, more bool, id byte) []byte {
		p := []byte{next, 0, 0, 0, 0, 0, 0, id}
		binary.BigEndian.PutUint16(p[2:], uint16(offset))
		if more {
			p[3] |= 1
		}
		return p
	}
	const icmp = unix.IPPROTO_ICMPV6
	return map[string][][]byte{
		"plain":                      {ip(icmp, message)},
		"behind hop-by-hop options":  {ip(hopByHop, options(icmp), message)},
		"behind destination options": {ip(destination, options(icmp), message)},
		"behind many options": {ip(hopByHop, options(destination), options(destination), options(destination),
			options(icmp), message)},
		"in an only fragment": {ip(fragment, piece(icmp, 0, false, 1), message)},
		"in two fragments": {ip(fragment, piece(icmp, 0, true, 2), message[:8]),
			ip(fragment, piece(icmp, 8, false, 2), message[8:])},
		"the type in the second one": {ip(fragment, piece(destination, 0, true, 3), options(icmp)),
			ip(fragment, piece(destination, 8, false, 3), message)},
		"the second fragment first": {ip(fragment, piece(icmp, 8, false, 4), message[8:]),
			ip(fragment, piece(icmp, 0, true, 4), message[:8])},
		"options cut in the first": {ip(fragment, piece(destination, 0, true, 5), []byte{destination, 0, 1, 4, 0, 0,
			0, 0}), ip(fragment, piece(destination, 8, false, 5), options(icmp), message)},
		"options longer than a piece": {ip(fragment, piece(destination, 0, true, 6), []byte{icmp, 1, 1, 12, 0, 0, 0,
			0}), ip(fragment, piece(destination, 8, false, 6), make([]byte, 8), message)},
		"a fragment in a fragment": {ip(fragment, piece(fragment, 0, false, 7), piece(icmp, 0, false, 8), message)},
	}
}

// toAll returns an Ethernet frame for all nodes.
func toAll(t *testing.T, h *lab.Host, packet []byte) []byte {
	t.Helper()
	frame := append(net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, e2e.HardwareAddr(t, h)...)
	return append(append(frame, 0x86, 0xdd), packet...)
}

// announces sends frames from one host and reports whether another one gets the message that they carry as a whole in
// one of them.
func announces(t *testing.T, from, to *lab.Host, message []byte, frames ...[]byte) bool {
	t.Helper()
	capture, err := to.Capture("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer capture.Close()
	// What comes behind them shows that they will not come any more. No two are alike: a bridge gives a frame to one
	// port after the other, and one of an earlier call may be on its way to this host still.
	marker := append(bytes.Clone(frames[0][:12]), "\x88\xb5that was all "+uuid.NewString()...)
	for _, frame := range append(frames, marker) {
		if err := from.SendFrame("eth0", frame); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Timeout)
	defer cancel()
	seen := false
	if _, err := capture.Await(ctx, func(f lab.Frame) bool {
		seen = seen || !f.Outgoing && bytes.HasSuffix(f.Data, message)
		return !f.Outgoing && bytes.HasSuffix(f.Data, marker[12:])
	}); err != nil {
		t.Fatal(err)
	}
	return seen
}

// takesAddress reports whether a host has an address in the advertised network of a number.
func takesAddress(t *testing.T, h *lab.Host, number uint16) bool {
	t.Helper()
	prefix := netip.MustParseAddr(advertised + ":").As16()
	binary.BigEndian.PutUint16(prefix[6:], number)
	network := netip.PrefixFrom(netip.AddrFrom16(prefix), 64)
	found := false
	if err := h.Do(func() error {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		addrs, err := link.Addrs()
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			found = found || err == nil && network.Contains(p.Addr())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// expectNoRouter sends router advertisements and redirects from one pod in all disguises and expects that another gets
// none.
func expectNoRouter(t *testing.T, w *e2e.Cluster, from, to string, number *uint16, tags ...[]uint16) {
	t.Helper()
	src, dst := w.Hosts[from], w.Hosts[to]
	for _, kind := range []uint8{134, 137} {
		*number++
		address, message := fromRouter(t, src, "eth0", kind, *number)
		for name, packets := range disguises(address, message) {
			var frames [][]byte
			for _, p := range packets {
				frames = append(frames, toAll(t, src, p))
			}
			if announces(t, src, dst, message, frames...) {
				t.Errorf("type %d of %s, %s, reached %s\n%s", kind, from, name, to, bridgeRules(t, w, dst))
			}
			for _, tag := range tags {
				frame := tagged(t, src, dst, tag, packets[0])
				if announces(t, src, dst, message, frame) {
					t.Errorf("type %d of %s, %s, in tags %x, reached %s\n%s", kind, from, name, tag, to,
						bridgeRules(t, w, dst))
				}
			}
		}
		if takesAddress(t, dst, *number) {
			t.Errorf("%s has an address of %s's choice", to, from)
		}
	}
}

func bridgeRules(t *testing.T, w *e2e.Cluster, pod *lab.Host) string {
	t.Helper()
	return e2e.Run(t, w.Places[pod].Host, "nft", "list", "ruleset", "bridge")
}

// routes reports whether a host takes an address by the advertisement of another one.
func routes(t *testing.T, w *e2e.Cluster, from *lab.Host, interfaceName string, to string, number *uint16) bool {
	t.Helper()
	*number++
	address, message := fromRouter(t, from, interfaceName, 134, *number)
	source, err := netInterfaceAddr(from, interfaceName)
	if err != nil {
		t.Fatal(err)
	}
	frame := append(append(net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, source...), 0x86, 0xdd)
	frame = append(frame, disguises(address, message)["plain"][0]...)
	if err := from.SendFrame(interfaceName, frame); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(e2e.Converged); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if takesAddress(t, w.Hosts[to], *number) {
			return true
		}
	}
	return false
}

func netInterfaceAddr(h *lab.Host, name string) (a net.HardwareAddr, err error) {
	err = h.Do(func() error {
		link, err := net.InterfaceByName(name)
		if err == nil {
			a = link.HardwareAddr
		}
		return err
	})
	return a, err
}

// TestS54_OnlyRoutersAdvertise checks that what only routers send passes from the node and from an uplink, and never
// from a pod's port.
func TestS54_OnlyRoutersAdvertise(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{Attach: lab.Bridge})
		n1 := w.Node("node1")
		uplink := w.AddPod(t, "node1", "uplink", lab.PodConfig{Port: "vethwe-bridge"})
		w.AddPod(t, "node1", "tenant", lab.PodConfig{Port: "tenant0"}) // ip6tables accepts no such name for a pod's port
		number := uint16(0)
		if !routes(t, w, w.Hosts["db"], "eth0", "web", &number) {
			t.Fatal("without weave-npc a pod takes no address by another one's advertisement: nothing is tested here")
		}
		w.Begin(t, e2e.Base())
		for _, pod := range []string{"db", "tenant"} {
			awaitGuard(t, w, n1, pod)
			expectNoRouter(t, w, pod, "web", &number)
		}
		for name, from := range map[string]*lab.Host{"an uplink": uplink.Host, "the node": n1.Host} {
			interfaceName := "eth0"
			if from == n1.Host {
				interfaceName = n1.PodInterface()
			}
			if !routes(t, w, from, interfaceName, "web", &number) {
				t.Errorf("an advertisement of %s did not arrive\n%s", name, bridgeRules(t, w, w.Hosts["web"]))
			}
		}
		probeAdvertised(t, w, "web", "db")

		// ip6tables stands in where there is no table of nftables.
		w.Daemons[0].Kill(t)
		w.Daemons[1].Kill(t)
		e2e.Run(t, n1.Host, "nft", "delete", "table", "bridge", "weave-npc")
		number++
		address, message := fromRouter(t, w.Hosts["db"], "eth0", 134, number)
		if announces(t, w.Hosts["db"], w.Hosts["web"], message,
			toAll(t, w.Hosts["db"], disguises(address, message)["plain"][0])) {
			t.Errorf("without nftables an advertisement passed\n%s", w.State())
		}
		if !routes(t, w, uplink.Host, "eth0", "web", &number) {
			t.Errorf("without nftables an uplink's advertisement did not pass\n%s", w.State())
		}
	})
}

// probeAdvertised: fragments and echo of pods pass the guard.
func probeAdvertised(t *testing.T, w *e2e.Cluster, from, to string) {
	t.Helper()
	for _, size := range []int{0, 4000} {
		w.Probe(t, from, lab.Packet{Proto: "icmp", To: w.Hosts[to].Addr6(), Size: size}, lab.Allowed)
		w.Probe(t, from, lab.Packet{Proto: "udp", Port: 53, To: w.Hosts[to].Addr6(), Size: size}, lab.Allowed)
	}
}

// TestS54_OnlyRoutersAdvertiseWhereTagsAreAllowed checks that --allow-vlan lets no advertisements pass, without a tag
// or with one.
func TestS54_OnlyRoutersAdvertiseWhereTagsAreAllowed(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Do(e2e.Base(), e2e.Policy("shop/p", `{podSelector: {}}`)), "--allow-vlan")
		awaitGuard(t, w, w.Node("node1"), "db")
		number := uint16(0)
		expectNoRouter(t, w, "db", "web", &number, []uint16{0x8100}, []uint16{0x88a8})
	})
}
