package domainnames

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// segment is a TCP segment for tests.
type segment struct {
	from, to netip.AddrPort
	seq      uint32
	flags    uint8
	payload  []byte
}

// bytes returns the packet, with an IPv4 option or an IPv6 extension header.
func (s segment) bytes(t testing.TB) []byte {
	t.Helper()
	tcp := &layers.TCP{SrcPort: layers.TCPPort(s.from.Port()), DstPort: layers.TCPPort(s.to.Port()), Seq: s.seq, Ack: 77,
		SYN: s.flags&flagSYN != 0, ACK: s.flags&flagACK != 0, URG: s.flags&flagURG != 0, Window: 1000,
		Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindNop}}}
	return serialize(t, s.from.Addr(), s.to.Addr(), layers.IPProtocolTCP, tcp, s.payload)
}

func udp(t testing.TB, from, to netip.AddrPort, payload []byte) []byte {
	t.Helper()
	return serialize(t, from.Addr(), to.Addr(), layers.IPProtocolUDP,
		&layers.UDP{SrcPort: layers.UDPPort(from.Port()), DstPort: layers.UDPPort(to.Port())}, payload)
}

func serialize(t testing.TB, from, to netip.Addr, proto layers.IPProtocol, transport gopacket.SerializableLayer,
	payload []byte) []byte {
	t.Helper()
	var network gopacket.NetworkLayer
	all := []gopacket.SerializableLayer{transport, gopacket.Payload(payload)}
	if from.Is4() {
		ip := &layers.IPv4{Version: 4, TTL: 64, Id: 7, Flags: layers.IPv4DontFragment, Protocol: proto,
			SrcIP: net.IP(from.AsSlice()), DstIP: net.IP(to.AsSlice()),
			Options: []layers.IPv4Option{{OptionType: 1, OptionLength: 1}}}
		network, all = ip, append([]gopacket.SerializableLayer{ip}, all...)
	} else {
		ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolIPv6Destination,
			SrcIP: net.IP(from.AsSlice()), DstIP: net.IP(to.AsSlice())}
		extension := &layers.IPv6Destination{}
		extension.NextHeader = proto
		extension.Options = []*layers.IPv6DestinationOption{{OptionType: 1, OptionData: make([]byte, 4), OptionLength: 4}}
		network, all = ip, append([]gopacket.SerializableLayer{ip, extension}, all...)
	}
	if l, ok := transport.(interface {
		SetNetworkLayerForChecksum(gopacket.NetworkLayer) error
	}); ok {
		if err := l.SetNetworkLayerForChecksum(network); err != nil {
			t.Fatal(err)
		}
	}
	b := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, options, all...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func port(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// ends are the two ends of an answer, of each family.
func ends() [][2]netip.AddrPort {
	return [][2]netip.AddrPort{{port("10.0.0.53:53"), port("10.0.0.2:4000")},
		{port("[fd00::53]:53"), port("[fd00::2]:4000")}}
}

func TestS109_PacketsAreRead(t *testing.T) {
	for _, e := range ends() {
		for _, raw := range [][]byte{udp(t, e[0], e[1], []byte("abc")),
			segment{e[0], e[1], 9, flagACK, []byte("abc")}.bytes(t)} {
			p, err := parsePacket(append(bytes.Clone(raw), 0, 0)) // with padding
			if err != nil || p.from != e[0] || p.to != e[1] || string(p.payload) != "abc" || p.seq != 9 && p.proto == 6 {
				t.Errorf("%v, read %+v: %v", e, p, err)
			}
			for n := range raw {
				if _, err := parsePacket(raw[:n]); err == nil {
					t.Errorf("%d bytes of %d are read", n, len(raw))
				}
			}
		}
	}
}

func TestS110_FragmentsAreNotRead(t *testing.T) {
	for _, field := range []uint16{moreIsToCome, 1, moreIsToCome - 1} {
		raw := udp(t, ends()[0][0], ends()[0][1], []byte("abc"))
		binary.BigEndian.PutUint16(raw[6:], field)
		if p, err := parsePacket(raw); err == nil {
			t.Errorf("fragment %#x is read as %+v", field, p)
		}
	}
	raw := udp(t, ends()[1][0], ends()[1][1], []byte("abc"))
	raw[6] = 44 // the extension header, of the same size, becomes that of a fragment
	raw[40+1], raw[40+2], raw[40+3] = 0, 0, 0
	if _, err := parsePacket(raw); err != nil {
		t.Errorf("a packet that is its only fragment: %v", err)
	}
	for _, field := range []uint16{1, 8} {
		binary.BigEndian.PutUint16(raw[42:], field)
		if p, err := parsePacket(raw); err == nil {
			t.Errorf("fragment %#x is read as %+v", field, p)
		}
	}
}

// TestS114_ResetsAreValid: gopacket finds the same checksums, and the same ends.
func TestS114_ResetsAreValid(t *testing.T) {
	for _, e := range ends() {
		p, err := parsePacket(segment{e[0], e[1], 0xfffffff0, flagACK, []byte("abc")}.bytes(t))
		if err != nil {
			t.Fatal(err)
		}
		raw := p.reset()
		first := layers.LayerTypeIPv4
		if e[0].Addr().Is6() {
			first = layers.LayerTypeIPv6
		}
		read := gopacket.NewPacket(raw, first, gopacket.Default)
		tcp, ok := read.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !ok || read.ErrorLayer() != nil {
			t.Fatalf("%x: %v", raw, read.ErrorLayer())
		}
		if !tcp.RST || !tcp.ACK || tcp.PSH || tcp.Seq != 0xfffffff0 || tcp.Ack != 77 || len(tcp.Payload) > 0 ||
			tcp.DataOffset != 5 {
			t.Errorf("reset %+v", tcp)
		}
		if err := tcp.SetNetworkLayerForChecksum(read.NetworkLayer()); err != nil {
			t.Fatal(err)
		}
		for _, l := range read.Layers() {
			if c, ok := l.(gopacket.LayerWithChecksum); ok {
				if err, result := c.VerifyChecksum(); err != nil || !result.Valid {
					t.Errorf("%s has a wrong checksum: %+v, %v", l.LayerType(), result, err)
				}
			}
		}
		if again, err := parsePacket(raw); err != nil || again.from != e[0] || again.to != e[1] {
			t.Errorf("read %+v: %v", again, err)
		}
	}
}

func FuzzPacket(f *testing.F) {
	for _, e := range ends() {
		f.Add(udp(f, e[0], e[1], []byte("abc")))
		f.Add(segment{e[0], e[1], 9, flagACK, []byte("abc")}.bytes(f))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if p, err := parsePacket(raw); err == nil && p.proto == 6 {
			if again, err := parsePacket(p.reset()); err != nil || again.from != p.from || again.seq != p.seq {
				t.Fatalf("reset of %+v is %+v: %v", p, again, err)
			}
		}
	})
}
