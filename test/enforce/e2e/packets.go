package e2e

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// Craft returns an IP packet with lengths and checksums filled in.
func Craft(t *testing.T, from, to netip.Addr, hopLimit uint8, transport ...gopacket.SerializableLayer) []byte {
	t.Helper()
	var network gopacket.SerializableLayer
	var checksums gopacket.NetworkLayer
	proto := map[gopacket.LayerType]layers.IPProtocol{layers.LayerTypeUDP: layers.IPProtocolUDP,
		layers.LayerTypeTCP: layers.IPProtocolTCP, layers.LayerTypeICMPv6: layers.IPProtocolICMPv6,
		layers.LayerTypeICMPv4: layers.IPProtocolICMPv4, layers.LayerTypeGRE: layers.IPProtocolGRE}[transport[0].LayerType()]
	if from.Is4() {
		ip := &layers.IPv4{Version: 4, IHL: 5, TTL: hopLimit, Protocol: proto, SrcIP: from.AsSlice(),
			DstIP: to.AsSlice(), Id: 7}
		network, checksums = ip, ip
	} else {
		ip := &layers.IPv6{Version: 6, HopLimit: hopLimit, NextHeader: proto, SrcIP: from.AsSlice(),
			DstIP: to.AsSlice()}
		network, checksums = ip, ip
	}
	for _, l := range transport {
		if l, ok := l.(interface {
			SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
		}); ok {
			if err := l.SetNetworkLayerForChecksum(checksums); err != nil {
				t.Fatal(err)
			}
		}
	}
	buffer := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	all := append([]gopacket.SerializableLayer{network}, transport...)
	if err := gopacket.SerializeLayers(buffer, options, all...); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(buffer.Bytes())
}

// UDP returns a datagram to a port.
func UDP(port uint16, payload string) []gopacket.SerializableLayer {
	return []gopacket.SerializableLayer{&layers.UDP{SrcPort: 40000, DstPort: layers.UDPPort(port)},
		gopacket.Payload(payload)}
}

// Crosses reports whether a packet that one host sends is seen on the interface of another. The packet is sent several
// times if need be: the first one may have to wait for the neighbour's address, and a busy machine may be late with one
// that is wanted.
func Crosses(t *testing.T, from *lab.Host, packet []byte, to *lab.Host, payload string, wanted bool) bool {
	t.Helper()
	capture, err := to.Capture("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer capture.Close()
	end := time.Now().Add(Converged)
	for i := 0; i < 3 || wanted && time.Now().Before(end); i++ {
		if err := from.SendIP(packet); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), DeniedTimeout)
		_, err := capture.Await(ctx, func(f lab.Frame) bool {
			ip := f.IP()
			return !f.Outgoing && len(ip) >= len(payload) && string(ip[len(ip)-len(payload):]) == payload
		})
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}

// Probe sends one packet and checks its verdict.
func (w *Cluster) Probe(t *testing.T, from string, p lab.Packet, wanted lab.Verdict) {
	t.Helper()
	if p.Timeout == 0 {
		p.Timeout = await.Scaled(5 * time.Second)
		if wanted == lab.Dropped {
			p.Timeout = DeniedTimeout
		}
	}
	seen, err := w.Hosts[from].Probe(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if seen != wanted {
		t.Errorf("%s from %s port %d to %s port %d is %s, not %s\n%s", p.Proto, from, p.FromPort, p.To, p.Port, seen,
			wanted, w.State())
	}
}

// EachFamily calls f for IPv4 and IPv6.
func EachFamily(f func(family int)) {
	for _, family := range []int{4, 6} {
		f(family)
	}
}

// Conversation is a TCP connection to a host's port 80, whose server answers with what it is sent.
type Conversation struct {
	Say func(t *testing.T)
}

// Converse opens a connection that can be used again and again.
func (w *Cluster) Converse(t *testing.T, from, to string, family int) Conversation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	conn, err := w.Hosts[from].DialContext(ctx, "tcp", netip.AddrPortFrom(w.Hosts[to].Addr(family), 80).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	greeting := make([]byte, len(w.Hosts[to].Name())+1)
	read := func(t *testing.T, b []byte) {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(Converged)); err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(b); {
			more, err := conn.Read(b[n:])
			if err != nil {
				t.Fatalf("the connection from %s to %s (IPv%d): %v\n%s", from, to, family, err, w.State())
			}
			n += more
		}
	}
	read(t, greeting)
	return Conversation{Say: func(t *testing.T) {
		t.Helper()
		if _, err := conn.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		read(t, make([]byte, 5))
	}}
}

// OldFlow returns a packet of a UDP flow that always has the same ports.
func OldFlow(w *Cluster, to string, family int) lab.Packet {
	return lab.Packet{Proto: "udp", To: w.Hosts[to].Addr(family), Port: 53, FromPort: 46000}
}

// Multicast sends to groups from isolated pods to isolated ones. Only a bridge carries it.
func Multicast(t *testing.T, w *Cluster, wanted bool) {
	t.Helper()
	if w.Attach != lab.Bridge {
		return
	}
	for _, group := range []string{"224.0.0.251", "ff02::fb"} {
		to := netip.MustParseAddr(group)
		family := 4
		if to.Is6() {
			family = 6
		}
		packet := Craft(t, w.Hosts["web"].Addr(family), to, 1, UDP(5353, "to "+group)...)
		if Crosses(t, w.Hosts["web"], packet, w.Hosts["db"], "to "+group, wanted) != wanted {
			t.Errorf("%s must arrive: %t\n%s", group, wanted, w.State())
		}
	}
}

// HardwareAddr returns the MAC address of a host's eth0.
func HardwareAddr(t *testing.T, h *lab.Host) (a net.HardwareAddr) {
	t.Helper()
	if err := h.Do(func() error {
		link, err := net.InterfaceByName("eth0")
		if err == nil {
			a = link.HardwareAddr
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return a
}
