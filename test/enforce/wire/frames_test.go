package wire

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// frame returns a random frame.
func (f *forger) frame(t *testing.T) []byte {
	t.Helper()
	ethernet := &layers.Ethernet{SrcMAC: f.anyMAC(), DstMAC: pick(f.Rand, f.macs)}
	var stack []gopacket.SerializableLayer
	switch f.IntN(8) {
	case 0, 1:
		ethernet.EthernetType, stack = layers.EthernetTypeARP, f.arp()
	case 2, 3:
		ethernet.EthernetType, stack = layers.EthernetTypeIPv4, f.ipv4()
	default:
		ethernet.EthernetType, stack = layers.EthernetTypeIPv6, f.ipv6()
	}
	stack = append([]gopacket.SerializableLayer{ethernet}, stack...)
	buffer := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{ComputeChecksums: true, FixLengths: true},
		stack...); err != nil {
		t.Fatal(err)
	}
	return f.spoil(buffer.Bytes())
}

// spoil puts a frame into tags or other frames, and changes or cuts off bytes, now and then.
func (f *forger) spoil(frame []byte) []byte {
	header, rest := frame[:12:12], frame[12:]
	switch f.IntN(24) {
	case 0:
		frame = append(append(header, 0x81, 0, 0, 5), rest...)
	case 1:
		frame = append(append(header, 0x88, 0xa8, 0, 5, 0x81, 0, 0, 0), rest...)
	case 2: // 802.2 and SNAP
		frame = append(append(header, byte((len(rest)+6)>>8), byte(len(rest)+6), 0xaa, 0xaa, 3, 0, 0, 0), rest...)
	case 3: // PPPoE
		frame = append(append(header, 0x88, 0x64, 0x11, 0, 0, 1, byte(len(rest)>>8), byte(len(rest)), 0, 0x21), rest[2:]...)
	case 4:
		binary.BigEndian.PutUint16(frame[12:], uint16(f.Uint32()))
	case 5, 6:
		for range 1 + f.IntN(3) {
			frame[12+f.IntN(len(frame)-12)] = byte(f.Uint32())
		}
	case 7:
		frame = frame[:14+f.IntN(len(frame)-14)]
	}
	return frame
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// anyMAC returns the pod's own hardware address more often than another.
func (f *forger) anyMAC() net.HardwareAddr {
	if f.IntN(3) > 0 {
		return f.mac
	}
	return pick(f.Rand, f.macs)
}

// source returns an address, the pod's own as often as others.
func (f *forger) source(family int) netip.Addr {
	if f.IntN(2) == 0 {
		return f.w.Hosts["db"].Addr(family)
	}
	return pick(f.Rand, f.ips[family])
}

func (f *forger) arp() []gopacket.SerializableLayer {
	return []gopacket.SerializableLayer{&layers.ARP{AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4,
		HwAddressSize: 6, ProtAddressSize: 4, Operation: uint16(1 + f.IntN(2)), SourceHwAddress: f.anyMAC(),
		SourceProtAddress: f.source(4).AsSlice(), DstHwAddress: pick(f.Rand, f.macs),
		DstProtAddress: pick(f.Rand, f.ips[4]).AsSlice()}, gopacket.Payload(forgeMark)}
}

func (f *forger) ipv4() []gopacket.SerializableLayer {
	ip := &layers.IPv4{Version: 4, TTL: 64, Id: uint16(f.Uint32()), SrcIP: f.source(4).AsSlice(),
		DstIP: pick(f.Rand, f.ips[4]).AsSlice(), Protocol: layers.IPProtocolUDP}
	switch f.IntN(6) {
	case 0:
		ip.Flags = layers.IPv4MoreFragments
	case 1:
		ip.FragOffset = uint16(f.IntN(8))
	case 2:
		ip.Options = []layers.IPv4Option{{OptionType: 131, OptionLength: 7, OptionData: append([]byte{4},
			pick(f.Rand, f.ips[4]).AsSlice()...)}} // loose source route
	case 3:
		ip.Protocol = layers.IPProtocolICMPv4
		return []gopacket.SerializableLayer{ip, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(uint8(f.IntN(20)), 0)},
			gopacket.Payload(forgeMark)}
	}
	udp := &layers.UDP{SrcPort: layers.UDPPort(pick(f.Rand, []uint16{68, 67, 5000})),
		DstPort: layers.UDPPort(pick(f.Rand, []uint16{67, 68, 53}))}
	_ = udp.SetNetworkLayerForChecksum(ip)
	return []gopacket.SerializableLayer{ip, udp, gopacket.Payload(forgeMark)}
}

func (f *forger) ipv6() []gopacket.SerializableLayer {
	ip := &layers.IPv6{Version: 6, HopLimit: pick(f.Rand, []uint8{255, 255, 64, 1}), SrcIP: f.source(6).AsSlice(),
		DstIP: pick(f.Rand, f.ips[6]).AsSlice(), NextHeader: layers.IPProtocolICMPv6}
	stack := []gopacket.SerializableLayer{ip}
	next := &ip.NextHeader
	if f.IntN(4) == 0 { // an extension header, by its bytes: the kind, what follows, and padding
		kind := pick(f.Rand, []layers.IPProtocol{layers.IPProtocolIPv6HopByHop, layers.IPProtocolIPv6Destination,
			layers.IPProtocolIPv6Routing, layers.IPProtocolIPv6Fragment})
		*next = kind
		header := []byte{byte(layers.IPProtocolICMPv6), 0, 1, 4, 0, 0, 0, 0}
		if kind == layers.IPProtocolIPv6Fragment {
			binary.BigEndian.PutUint16(header[2:], uint16(f.IntN(4)<<3|f.IntN(2)))
		}
		return append(stack, gopacket.Payload(append(header, f.rawICMP(ip)...)))
	}
	if f.IntN(4) == 0 {
		*next = layers.IPProtocolUDP
		udp := &layers.UDP{SrcPort: 5000, DstPort: 53}
		_ = udp.SetNetworkLayerForChecksum(ip)
		return append(stack, udp, gopacket.Payload(forgeMark))
	}
	return append(stack, f.icmp6(ip)...)
}

// rawICMP returns the bytes of a random ICMPv6 message.
func (f *forger) rawICMP(ip *layers.IPv6) []byte {
	buffer := gopacket.NewSerializeBuffer()
	_ = gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{ComputeChecksums: true, FixLengths: true}, f.icmp6(ip)...)
	return buffer.Bytes()
}

// icmp6 returns a message of neighbour discovery, MLD or another.
func (f *forger) icmp6(ip *layers.IPv6) []gopacket.SerializableLayer {
	kind := pick(f.Rand, []uint8{133, 134, 135, 135, 136, 136, 136, 137, 143, 131, 128, 1, 2, uint8(f.Uint32())})
	header := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}
	_ = header.SetNetworkLayerForChecksum(ip)
	option := layers.ICMPv6Option{Type: pick(f.Rand, []layers.ICMPv6Opt{layers.ICMPv6OptSourceAddress,
		layers.ICMPv6OptTargetAddress}), Data: f.anyMAC()}
	mark := layers.ICMPv6Option{Type: 253, Data: append([]byte(forgeMark), 0, 0, 0, 0, 0, 0)}
	options := layers.ICMPv6Options{option, mark}
	target := f.source(6).AsSlice()
	var body gopacket.SerializableLayer
	switch kind {
	case 133:
		body = &layers.ICMPv6RouterSolicitation{Options: options}
	case 134:
		body = &layers.ICMPv6RouterAdvertisement{RouterLifetime: 1800, Options: options}
	case 135:
		body = &layers.ICMPv6NeighborSolicitation{TargetAddress: target, Options: options}
	case 136:
		body = &layers.ICMPv6NeighborAdvertisement{Flags: pick(f.Rand, []uint8{0x20, 0x60, 0xe0}), TargetAddress: target,
			Options: options}
	case 137:
		body = &layers.ICMPv6Redirect{TargetAddress: target, DestinationAddress: pick(f.Rand, f.ips[6]).AsSlice(),
			Options: options}
	default:
		body = gopacket.Payload("    " + forgeMark)
	}
	return []gopacket.SerializableLayer{header, body}
}
