package ulogd

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// build serializes layers, with lengths filled in.
func build(t testing.TB, ls ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, ls...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func ip4(protocol layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: net.IP{10, 32, 0, 7}, DstIP: net.IP{10, 32, 0, 9}}
}

func ip6(next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: next,
		SrcIP: net.ParseIP("fd00::7"), DstIP: net.ParseIP("fd00::9")}
}

// extension is an IPv6 extension header of 8 bytes times units; AH counts its length differently.
func extension(next layers.IPProtocol, units int, ah bool) gopacket.Payload {
	b := make([]byte, 8*units)
	b[0], b[1] = byte(next), byte(units-1)
	if ah {
		b[1] = byte(2*units - 2)
	}
	return b
}

func fragment6(next layers.IPProtocol, offset uint16, more bool) gopacket.Payload {
	b := make([]byte, 8)
	b[0] = byte(next)
	binary.BigEndian.PutUint16(b[2:], offset<<3)
	if more {
		b[3] |= 1
	}
	return b
}

func decodeCases(t testing.TB) []decodeCase {
	src4, dst4 := netip.MustParseAddr("10.32.0.7"), netip.MustParseAddr("10.32.0.9")
	src6, dst6 := netip.MustParseAddr("fd00::7"), netip.MustParseAddr("fd00::9")
	tcp := &layers.TCP{SrcPort: 41234, DstPort: 5432, SYN: true, ECE: true, CWR: true, Window: 1}
	udp := &layers.UDP{SrcPort: 1, DstPort: 65535}
	sctp := &layers.SCTP{SrcPort: 2905, DstPort: 2906}
	icmp := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 13)}
	icmp6 := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(1, 5)}
	options4 := ip4(layers.IPProtocolUDP)
	options4.Options = []layers.IPv4Option{{OptionType: 1}, {OptionType: 1}, {OptionType: 1}, {OptionType: 0}}
	first4, later4 := ip4(layers.IPProtocolUDP), ip4(layers.IPProtocolUDP)
	first4.Flags, later4.FragOffset = layers.IPv4MoreFragments, 185
	pad := gopacket.Payload{1, 2, 3, 4, 5, 6, 7, 8}
	extended := build(t, ip6(layers.IPProtocolIPv6HopByHop), extension(layers.IPProtocolIPv6Routing, 1, false),
		extension(layers.IPProtocolIPv6Destination, 3, false), extension(layers.IPProtocolAH, 2, false),
		extension(layers.IPProtocolTCP, 3, true), tcp)
	bigTCP := build(t, ip4(layers.IPProtocolTCP), tcp)
	bigTCP[2], bigTCP[3] = 0, 0
	jumbogram := build(t, ip6(layers.IPProtocolTCP), tcp)
	jumbogram[4], jumbogram[5] = 0, 0
	padded := append(build(t, ip4(layers.IPProtocolUDP)), pad...)

	return []decodeCase{
		{"TCP", build(t, ip4(layers.IPProtocolTCP), tcp),
			Packet{Src: src4, Dst: dst4, Protocol: 6, SrcPort: 41234, DstPort: 5432, TCPFlags: 0xc2, Length: 40}},
		{"UDP", build(t, ip4(layers.IPProtocolUDP), udp, pad),
			Packet{Src: src4, Dst: dst4, Protocol: 17, SrcPort: 1, DstPort: 65535, Length: 36}},
		{"SCTP", build(t, ip4(layers.IPProtocolSCTP), sctp),
			Packet{Src: src4, Dst: dst4, Protocol: 132, SrcPort: 2905, DstPort: 2906, Length: 32}},
		{"ICMP", build(t, ip4(layers.IPProtocolICMPv4), icmp),
			Packet{Src: src4, Dst: dst4, Protocol: 1, ICMPType: 3, ICMPCode: 13, Length: 28}},
		{"GRE", build(t, ip4(layers.IPProtocolGRE), pad), Packet{Src: src4, Dst: dst4, Protocol: 47, Length: 28}},
		{"IPv4 options", build(t, options4, udp),
			Packet{Src: src4, Dst: dst4, Protocol: 17, SrcPort: 1, DstPort: 65535, Length: 32}},
		{"first fragment", build(t, first4, udp),
			Packet{Src: src4, Dst: dst4, Protocol: 17, SrcPort: 1, DstPort: 65535, Length: 28}},
		{"later fragment", build(t, later4, pad), Packet{Src: src4, Dst: dst4, Protocol: 17, Fragment: true, Length: 28}},
		{"later fragment, options cut off", build(t, func() *layers.IPv4 {
			ip := *later4
			ip.Options = options4.Options
			return &ip
		}(), pad)[:20], Packet{Src: src4, Dst: dst4, Protocol: 17, Fragment: true, Length: 32}},
		{"options cut off", build(t, options4, udp)[:22],
			Packet{Src: src4, Dst: dst4, Protocol: 17, Truncated: true, Length: 32}},
		{"TCP cut after ports", build(t, ip4(layers.IPProtocolTCP), tcp)[:24],
			Packet{Src: src4, Dst: dst4, Protocol: 6, SrcPort: 41234, DstPort: 5432, Truncated: true, Length: 40}},
		{"UDP cut in ports", build(t, ip4(layers.IPProtocolUDP), udp)[:23],
			Packet{Src: src4, Dst: dst4, Protocol: 17, Truncated: true, Length: 28}},
		{"ICMP cut", build(t, ip4(layers.IPProtocolICMPv4), icmp)[:21],
			Packet{Src: src4, Dst: dst4, Protocol: 1, Truncated: true, Length: 28}},
		{"bytes after the end are none of its", padded,
			Packet{Src: src4, Dst: dst4, Protocol: 17, Truncated: true, Length: 20}},
		{"BIG TCP, IPv4", bigTCP,
			Packet{Src: src4, Dst: dst4, Protocol: 6, SrcPort: 41234, DstPort: 5432, TCPFlags: 0xc2, Length: 40}},

		{"TCP IPv6", build(t, ip6(layers.IPProtocolTCP), tcp),
			Packet{Src: src6, Dst: dst6, Protocol: 6, SrcPort: 41234, DstPort: 5432, TCPFlags: 0xc2, Length: 60}},
		{"ICMPv6", build(t, ip6(layers.IPProtocolICMPv6), icmp6),
			Packet{Src: src6, Dst: dst6, Protocol: 58, ICMPType: 1, ICMPCode: 5, Length: 44}},
		{"SCTP IPv6", build(t, ip6(layers.IPProtocolSCTP), sctp),
			Packet{Src: src6, Dst: dst6, Protocol: 132, SrcPort: 2905, DstPort: 2906, Length: 52}},
		{"no next header", build(t, ip6(layers.IPProtocolNoNextHeader)), Packet{Src: src6, Dst: dst6, Protocol: 59, Length: 40}},
		{"jumbogram", jumbogram,
			Packet{Src: src6, Dst: dst6, Protocol: 6, SrcPort: 41234, DstPort: 5432, TCPFlags: 0xc2, Length: 60}},
		{"first fragment IPv6", build(t, ip6(layers.IPProtocolIPv6Fragment), fragment6(layers.IPProtocolUDP, 0, true), udp),
			Packet{Src: src6, Dst: dst6, Protocol: 17, SrcPort: 1, DstPort: 65535, Length: 56}},
		{"later fragment IPv6", build(t, ip6(layers.IPProtocolIPv6Fragment), fragment6(layers.IPProtocolUDP, 1, false), pad),
			Packet{Src: src6, Dst: dst6, Protocol: 17, Fragment: true, Length: 56}},
		{"later fragment of an extension header",
			build(t, ip6(layers.IPProtocolIPv6Fragment), fragment6(layers.IPProtocolIPv6Destination, 1, false), pad),
			Packet{Src: src6, Dst: dst6, Protocol: 60, Fragment: true, Length: 56}},
		{"extension header cut", build(t, ip6(layers.IPProtocolIPv6HopByHop), extension(layers.IPProtocolTCP, 2, false), tcp)[:50],
			Packet{Src: src6, Dst: dst6, Protocol: 0, Truncated: true, Length: 76}},
		{"extension header not even begun", build(t, ip6(layers.IPProtocolIPv6Routing), pad)[:41],
			Packet{Src: src6, Dst: dst6, Protocol: 43, Truncated: true, Length: 48}},
		{"extension headers, AH last", extended,
			Packet{Src: src6, Dst: dst6, Protocol: 6, SrcPort: 41234, DstPort: 5432, TCPFlags: 0xc2, Length: 40 + 8*9 + 20}},
	}
}

type decodeCase struct {
	name string
	in   []byte
	want Packet
}

func TestDecode(t *testing.T) {
	for _, c := range decodeCases(t) {
		t.Run(c.name, func(t *testing.T) {
			got, err := decode(c.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

func TestDecodeErrors(t *testing.T) {
	whole4 := build(t, ip4(layers.IPProtocolTCP), gopacket.Payload(make([]byte, 20)))
	whole6 := build(t, ip6(layers.IPProtocolTCP))
	shortIHL := append([]byte{0x44}, whole4[1:]...)
	for name, in := range map[string][]byte{
		"nothing":               nil,
		"IP version 5":          {0x50},
		"IPv4 header cut":       whole4[:19],
		"IPv4 header too small": shortIHL,
		"IPv6 header cut":       whole6[:39],
	} {
		t.Run(name, func(t *testing.T) {
			if p, err := decode(in); err == nil {
				t.Errorf("no error, %+v", p)
			}
		})
	}
}

func TestProtocolName(t *testing.T) {
	for protocol, want := range map[uint8]string{6: "TCP", 17: "UDP", 132: "SCTP", 1: "ICMP", 58: "ICMPv6", 47: "47", 0: "0"} {
		if got := (Packet{Protocol: protocol}).ProtocolName(); got != want {
			t.Errorf("protocol %d is %q, want %q", protocol, got, want)
		}
	}
}

// FuzzDecode compares with an independent decoder wherever that finds a whole TCP, UDP or SCTP header.
func FuzzDecode(f *testing.F) {
	for _, c := range decodeCases(f) {
		f.Add(c.in)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		p, err := decode(in)
		if err != nil {
			if p != (Packet{}) {
				t.Errorf("an error and %+v", p)
			}
			return
		}
		if !p.Src.IsValid() || !p.Dst.IsValid() || p.Length < 0 {
			t.Errorf("%+v", p)
		}
		if (p.Fragment || p.Truncated) && (p.TCPFlags != 0 || p.ICMPType != 0) {
			t.Errorf("fields that cannot be known: %+v", p)
		}
		first := gopacket.Decoder(layers.LayerTypeIPv4)
		if p.Src.Is6() {
			first = layers.LayerTypeIPv6
		}
		reference := gopacket.NewPacket(in, first, gopacket.NoCopy)
		network := reference.NetworkLayer()
		if reference.ErrorLayer() != nil || network == nil || reference.TransportLayer() == nil || len(reference.Layers()) > 3 {
			return // tunnels and extension headers: it reads other packets than iptables does
		}
		var src, dst uint16
		switch l := reference.TransportLayer().(type) {
		case *layers.TCP:
			src, dst = uint16(l.SrcPort), uint16(l.DstPort)
		case *layers.UDP:
			src, dst = uint16(l.SrcPort), uint16(l.DstPort)
		case *layers.SCTP:
			src, dst = uint16(l.SrcPort), uint16(l.DstPort)
		default:
			return
		}
		if p.SrcPort != src || p.DstPort != dst {
			t.Errorf("ports %d, %d, want %d, %d in %x", p.SrcPort, p.DstPort, src, dst, in)
		}
		if net.IP(p.Dst.AsSlice()).String() != network.NetworkFlow().Dst().String() && !p.Dst.Is4In6() {
			t.Errorf("destination %s, want %s", p.Dst, network.NetworkFlow().Dst())
		}
	})
}
