package enforce

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weave-npc/weave-npc/test/lab"
)

// craft returns an IP packet with lengths and checksums filled in.
func craft(t *testing.T, from, to netip.Addr, hopLimit uint8, transport ...gopacket.SerializableLayer) []byte {
	t.Helper()
	var network gopacket.SerializableLayer
	var checksums gopacket.NetworkLayer
	proto := map[gopacket.LayerType]layers.IPProtocol{layers.LayerTypeUDP: layers.IPProtocolUDP,
		layers.LayerTypeTCP: layers.IPProtocolTCP, layers.LayerTypeICMPv6: layers.IPProtocolICMPv6,
		layers.LayerTypeGRE: layers.IPProtocolGRE}[transport[0].LayerType()]
	if from.Is4() {
		ip := &layers.IPv4{Version: 4, IHL: 5, TTL: hopLimit, Protocol: proto, SrcIP: from.AsSlice(),
			DstIP: to.AsSlice(), Id: 7}
		network, checksums = ip, ip
	} else {
		ip := &layers.IPv6{Version: 6, HopLimit: hopLimit, NextHeader: proto, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
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

// udp returns a datagram to a port.
func udp(port uint16, payload string) []gopacket.SerializableLayer {
	return []gopacket.SerializableLayer{&layers.UDP{SrcPort: 40000, DstPort: layers.UDPPort(port)},
		gopacket.Payload(payload)}
}

// crosses reports whether a packet that one host sends is seen on the interface of another. The packet is sent several
// times if need be: the first one may have to wait for the neighbour's address.
func crosses(t *testing.T, from *lab.Host, packet []byte, to *lab.Host, payload string) bool {
	t.Helper()
	capture, err := to.Capture("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer capture.Close()
	for range 3 {
		if err := from.SendIP(packet); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), deniedTimeout)
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

// probe sends one packet and checks its verdict.
func (w *harness) probe(t *testing.T, from string, p lab.Packet, wanted lab.Verdict) {
	t.Helper()
	if p.Timeout == 0 {
		p.Timeout = 5 * time.Second
		if wanted == lab.Dropped {
			p.Timeout = deniedTimeout
		}
	}
	seen, err := w.hosts[from].Probe(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if seen != wanted {
		t.Errorf("%s from %s port %d to %s port %d is %s, not %s\n%s", p.Proto, from, p.FromPort, p.To, p.Port, seen,
			wanted, w.state())
	}
}

// families calls f for IPv4 and IPv6.
func families(f func(family int)) {
	for _, family := range []int{4, 6} {
		f(family)
	}
}

// run runs a command on a host.
func run(t *testing.T, h *lab.Host, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	output, err := h.Command(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v on %s: %v\n%s", name, args, h, err, output)
	}
	return string(output)
}

// conversation is a TCP connection to a host's port 80, whose server answers with what it is sent.
type conversation struct {
	say func(t *testing.T)
}

func (w *harness) converse(t *testing.T, from, to string, family int) conversation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	conn, err := w.hosts[from].DialContext(ctx, "tcp", netip.AddrPortFrom(w.hosts[to].Addr(family), 80).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	greeting := make([]byte, len(w.hosts[to].Name())+1)
	read := func(t *testing.T, b []byte) {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(converged)); err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(b); {
			more, err := conn.Read(b[n:])
			if err != nil {
				t.Fatalf("the connection from %s to %s (IPv%d): %v\n%s", from, to, family, err, w.state())
			}
			n += more
		}
	}
	read(t, greeting)
	return conversation{say: func(t *testing.T) {
		t.Helper()
		if _, err := conn.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		read(t, make([]byte, 5))
	}}
}
