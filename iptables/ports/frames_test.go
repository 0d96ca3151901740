package ports_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weave-npc/weave-npc/iptables/ports"
)

// end is a pod's end of a link, or what a frame claims to come from.
type end struct {
	mac               ports.MAC
	v4, v6, linkLocal netip.Addr
}

// endOf returns the end of the i-th pod of pods.
func endOf(i int) end {
	e := end{v4: netip.AddrFrom4([4]byte{10, 32, byte(i >> 8), byte(i)}), mac: ports.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}}
	e.v6, e.linkLocal = netip.MustParseAddr("fd00::"), netip.MustParseAddr("fe80::")
	for _, a := range []*netip.Addr{&e.v6, &e.linkLocal} {
		raw := a.As16()
		binary.BigEndian.PutUint16(raw[14:], uint16(i+1))
		*a = netip.AddrFrom16(raw)
	}
	return e
}

func everybody() net.HardwareAddr { return net.HardwareAddr{255, 255, 255, 255, 255, 255} }

// serialize returns the bytes of layers, with lengths and checksums.
func serialize(t testing.TB, parts ...gopacket.SerializableLayer) []byte {
	t.Helper()
	var network gopacket.NetworkLayer
	for _, p := range parts {
		switch p := p.(type) {
		case *layers.IPv4:
			network = p
		case *layers.IPv6:
			network = p
		case *layers.ICMPv6:
			_ = p.SetNetworkLayerForChecksum(network)
		case *layers.UDP:
			_ = p.SetNetworkLayerForChecksum(network)
		case *layers.TCP:
			_ = p.SetNetworkLayerForChecksum(network)
		}
	}
	buffer := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, parts...); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(buffer.Bytes())
}

func ether(mac ports.MAC, kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: mac[:], DstMAC: everybody(), EthernetType: kind}
}

// frame returns a frame from a MAC address with an IP packet from an address.
func frame(t testing.TB, mac ports.MAC, from netip.Addr, proto layers.IPProtocol, hopLimit uint8, payload ...gopacket.SerializableLayer) []byte {
	t.Helper()
	if from.Is4() {
		return serialize(t, append([]gopacket.SerializableLayer{ether(mac, layers.EthernetTypeIPv4),
			&layers.IPv4{Version: 4, TTL: hopLimit, Protocol: proto, SrcIP: from.AsSlice(), DstIP: net.IP{10, 32, 0, 200}}}, payload...)...)
	}
	return serialize(t, append([]gopacket.SerializableLayer{ether(mac, layers.EthernetTypeIPv6),
		&layers.IPv6{Version: 6, HopLimit: hopLimit, NextHeader: proto, SrcIP: from.AsSlice(), DstIP: net.ParseIP("fd00::c8")}}, payload...)...)
}

func udp(t testing.TB, mac ports.MAC, from netip.Addr, source, destination uint16) []byte {
	t.Helper()
	return frame(t, mac, from, layers.IPProtocolUDP, 64, &layers.UDP{SrcPort: layers.UDPPort(source), DstPort: layers.UDPPort(destination)},
		gopacket.Payload("honest or not"))
}

func tcp(t testing.TB, mac ports.MAC, from netip.Addr) []byte {
	t.Helper()
	return frame(t, mac, from, layers.IPProtocolTCP, 64, &layers.TCP{SrcPort: 40000, DstPort: 80, SYN: true})
}

// icmp6 returns a frame with an ICMPv6 message: body is what follows the checksum.
func icmp6(t testing.TB, mac ports.MAC, from netip.Addr, kind, hopLimit uint8, body ...byte) []byte {
	t.Helper()
	return frame(t, mac, from, layers.IPProtocolICMPv6, hopLimit,
		&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}, gopacket.Payload(body))
}

// neighbour returns a neighbour solicitation (135) or advertisement (136).
func neighbour(t testing.TB, mac ports.MAC, from netip.Addr, kind uint8, target netip.Addr) []byte {
	t.Helper()
	return icmp6(t, mac, from, kind, 255, append([]byte{0, 0, 0, 0}, target.AsSlice()...)...)
}

// listener returns a frame of multicast listener discovery, which has the option of routers to look at it.
func listener(t testing.TB, mac ports.MAC, from netip.Addr, kind, hopLimit uint8) []byte {
	t.Helper()
	message := []byte{58, 0, 5, 2, 0, 0, 1, 0, kind, 0, 0, 0}
	return frame(t, mac, from, layers.IPProtocolIPv6HopByHop, hopLimit, gopacket.Payload(append(message, make([]byte, 24)...)))
}

// arp returns an ARP request (1) or reply (2): mac is in the frame, hardware and sender are in the message.
func arp(t testing.TB, mac, hardware ports.MAC, sender netip.Addr, operation uint16) []byte {
	t.Helper()
	return serialize(t, ether(mac, layers.EthernetTypeARP), &layers.ARP{AddrType: layers.LinkTypeEthernet,
		Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: operation,
		SourceHwAddress: hardware[:], SourceProtAddress: sender.AsSlice(), DstHwAddress: make([]byte, 6),
		DstProtAddress: []byte{10, 32, 0, 200}})
}

// fragment4 returns a fragment of an IPv4 datagram.
func fragment4(t testing.TB, mac ports.MAC, from netip.Addr, offset uint16) []byte {
	t.Helper()
	return serialize(t, ether(mac, layers.EthernetTypeIPv4), &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP,
		SrcIP: from.AsSlice(), DstIP: net.IP{10, 32, 0, 200}, Id: 9, Flags: layers.IPv4MoreFragments, FragOffset: offset},
		gopacket.Payload(make([]byte, 16)))
}

// fragment6 returns a fragment of an IPv6 packet with a protocol.
func fragment6(t testing.TB, mac ports.MAC, from netip.Addr, proto byte, offset uint16, payload ...byte) []byte {
	t.Helper()
	header := binary.BigEndian.AppendUint16([]byte{proto, 0}, offset<<3|1)
	return frame(t, mac, from, layers.IPProtocolIPv6Fragment, 255, gopacket.Payload(slices.Concat(header, []byte{0, 0, 0, 9}, payload)))
}

// other returns a frame with an EtherType, or an IEEE 802.3 frame with a length.
func other(mac ports.MAC, kind uint16) []byte {
	f := slices.Concat(everybody(), mac[:])
	return append(binary.BigEndian.AppendUint16(f, kind), make([]byte, 60)...)
}

// tagged puts a VLAN tag into a frame.
func tagged(kind uint16, f []byte) []byte {
	return slices.Concat(f[:12], binary.BigEndian.AppendUint16(nil, kind), []byte{0, 0}, f[12:])
}

// cut returns the first bytes of a frame.
func cut(f []byte, n int) []byte { return f[:n] }

// honest returns frames that a pod may send.
func honest(t testing.TB, e end) map[string][]byte {
	none4, none6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
	newLinkLocal, newAddr := netip.MustParseAddr("fe80::1234"), netip.MustParseAddr("fd00::1234")
	frames := map[string][]byte{
		"DHCP discover":                      udp(t, e.mac, none4, 68, 67),
		"duplicate detection":                neighbour(t, e.mac, none6, 135, newAddr),
		"duplicate detection of its own":     neighbour(t, e.mac, none6, 135, e.v6),
		"MLD from no address":                listener(t, e.mac, none6, 143, 1),
		"MLD 1 from no address":              listener(t, e.mac, none6, 131, 1),
		"MLD from a new link-local":          listener(t, e.mac, newLinkLocal, 143, 1),
		"MLD done":                           listener(t, e.mac, newLinkLocal, 132, 1),
		"router solicitation":                icmp6(t, e.mac, none6, 133, 255, 0, 0, 0, 0),
		"router solicitation, new":           icmp6(t, e.mac, newLinkLocal, 133, 255, 0, 0, 0, 0),
		"router solicitation, own":           icmp6(t, e.mac, e.linkLocal, 133, 255, 0, 0, 0, 0),
		"MLD":                                listener(t, e.mac, e.linkLocal, 143, 1),
		"MLD 1":                              listener(t, e.mac, e.linkLocal, 131, 1),
		"echo":                               icmp6(t, e.mac, e.v6, 128, 64, 0, 1, 0, 1),
		"a first fragment":                   fragment4(t, e.mac, e.v4, 0),
		"a later fragment":                   fragment4(t, e.mac, e.v4, 2),
		"a first fragment, IPv6":             fragment6(t, e.mac, e.v6, 17, 0, make([]byte, 16)...),
		"a later fragment, IPv6":             fragment6(t, e.mac, e.v6, 17, 2, make([]byte, 16)...),
		"a first fragment of echo":           fragment6(t, e.mac, e.v6, 58, 0, 128, 0, 0, 0, 0, 0, 0, 0),
		"a later fragment of echo":           fragment6(t, e.mac, e.v6, 58, 1, 136, 0, 0, 0, 0, 0, 0, 0),
		"neighbour solicitation":             neighbour(t, e.mac, e.linkLocal, 135, newAddr),
		"neighbour advertisement":            neighbour(t, e.mac, e.v6, 136, e.v6),
		"neighbour advertisement, crosswise": neighbour(t, e.mac, e.linkLocal, 136, e.v6),
	}
	for _, from := range []netip.Addr{e.v4, e.v6, e.linkLocal} {
		frames["TCP from "+from.String()], frames["UDP from "+from.String()] = tcp(t, e.mac, from), udp(t, e.mac, from, 4000, 53)
	}
	return frames
}

// honestOnBridge returns more of them for a pod on a bridge.
func honestOnBridge(t testing.TB, e end) map[string][]byte {
	return map[string][]byte{
		"ARP request": arp(t, e.mac, e.mac, e.v4, 1), "ARP reply": arp(t, e.mac, e.mac, e.v4, 2),
		"ARP probe": arp(t, e.mac, e.mac, netip.IPv4Unspecified(), 1), "another EtherType": other(e.mac, 0x88cc),
		"802.3": other(e.mac, 60),
	}
}

// forgedIP returns frames from a pod's MAC address with sources that are not bound to its port.
func forgedIP(t testing.TB, e, victim end) map[string][]byte {
	none4, none6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
	outside4, outside6 := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")
	return map[string][]byte{
		"another pod's address":                 udp(t, e.mac, victim.v4, 4000, 53),
		"another pod's address, TCP":            tcp(t, e.mac, victim.v4),
		"another pod's address, IPv6":           tcp(t, e.mac, victim.v6),
		"another pod's address, ICMPv6":         icmp6(t, e.mac, victim.v6, 128, 64, 0, 1, 0, 1),
		"an outside address":                    udp(t, e.mac, outside4, 4000, 53),
		"an outside address, IPv6":              udp(t, e.mac, outside6, 4000, 53),
		"an outside address, ICMPv6":            icmp6(t, e.mac, outside6, 128, 64, 0, 1, 0, 1),
		"no address, not DHCP":                  udp(t, e.mac, none4, 68, 53),
		"no address, IPv6":                      udp(t, e.mac, none6, 546, 547),
		"no address, echo":                      icmp6(t, e.mac, none6, 128, 64, 0, 1, 0, 1),
		"a router solicitation from afar":       icmp6(t, e.mac, none6, 133, 64, 0, 0, 0, 0),
		"MLD from afar":                         listener(t, e.mac, none6, 143, 64),
		"MLD from an outside address":           listener(t, e.mac, outside6, 143, 1),
		"a neighbour solicitation of a new one": neighbour(t, e.mac, netip.MustParseAddr("fe80::1234"), 135, victim.v6),
		"a fragment":                            fragment4(t, e.mac, victim.v4, 0),
		"a later fragment":                      fragment4(t, e.mac, victim.v4, 2),
		"a fragment, IPv6":                      fragment6(t, e.mac, victim.v6, 17, 0, make([]byte, 16)...),
		"a later fragment, IPv6":                fragment6(t, e.mac, victim.v6, 17, 2, make([]byte, 16)...),
		"a later fragment of ICMPv6":            fragment6(t, e.mac, victim.v6, 58, 2, make([]byte, 16)...),
		"duplicate detection in a fragment":     fragment6(t, e.mac, none6, 58, 0, append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, victim.v6.AsSlice()...)...),
		"duplicate detection for another's":     neighbour(t, e.mac, none6, 135, victim.v6),
	}
}

// forgedOnBridge returns frames with a forged MAC address, or that announce what is not the pod's.
func forgedOnBridge(t testing.TB, e, victim end) map[string][]byte {
	none4, none6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
	advert := append([]byte{136, 0, 0, 0, 0, 0, 0, 0}, victim.v6.AsSlice()...)
	return map[string][]byte{
		"another pod's MAC address":            udp(t, victim.mac, e.v4, 4000, 53),
		"another pod's MAC address, IPv6":      udp(t, victim.mac, e.v6, 4000, 53),
		"all of another pod's":                 udp(t, victim.mac, victim.v4, 4000, 53),
		"all of another pod's, IPv6":           tcp(t, victim.mac, victim.v6),
		"DHCP with another's MAC address":      udp(t, victim.mac, none4, 68, 67),
		"MLD with another's MAC address":       listener(t, victim.mac, none6, 143, 1),
		"another's link-local":                 udp(t, e.mac, victim.linkLocal, 546, 547),
		"MLD from another's link-local":        listener(t, e.mac, victim.linkLocal, 143, 1),
		"a solicitation from another's":        icmp6(t, e.mac, victim.linkLocal, 133, 255, 0, 0, 0, 0),
		"ARP request as another":               arp(t, e.mac, e.mac, victim.v4, 1),
		"ARP reply as another":                 arp(t, e.mac, e.mac, victim.v4, 2),
		"ARP reply for an outside address":     arp(t, e.mac, e.mac, netip.MustParseAddr("192.0.2.7"), 2),
		"ARP for another's MAC address":        arp(t, e.mac, victim.mac, e.v4, 2),
		"ARP in another's frame":               arp(t, victim.mac, e.mac, e.v4, 2),
		"all of another's, ARP":                arp(t, victim.mac, victim.mac, victim.v4, 2),
		"ARP probe with another's MAC address": arp(t, e.mac, victim.mac, none4, 1),
		"ARP probe in another's frame":         arp(t, victim.mac, e.mac, none4, 1),
		"an ARP message cut short":             cut(arp(t, e.mac, e.mac, e.v4, 1), 26),
		"advertisement of another's":           neighbour(t, e.mac, e.v6, 136, victim.v6),
		"advertisement of an outside address":  neighbour(t, e.mac, e.linkLocal, 136, netip.MustParseAddr("2001:db8::7")),
		"advertisement from another":           neighbour(t, e.mac, victim.v6, 136, victim.v6),
		"advertisement in a fragment":          fragment6(t, e.mac, e.v6, 58, 0, advert...),
		"solicitation in a fragment":           fragment6(t, e.mac, e.v6, 58, 0, append([]byte{135}, advert[1:]...)...),
		"a short advertisement":                icmp6(t, e.mac, e.v6, 136, 255, 0, 0, 0, 0, 1, 2, 3),
		"a short solicitation":                 icmp6(t, e.mac, e.v6, 135, 255, 0, 0, 0, 0, 1, 2, 3),
		"another EtherType, another's frame":   other(victim.mac, 0x88cc),
		"802.3 in another's frame":             other(victim.mac, 60),
	}
}

// reservedPass has how many of the frames with a reserved source pass in each mode.
func reservedPass(m ports.Mode) int {
	if m == ports.Off {
		return rounds
	}
	return 0
}

// reserve reserves the addresses of an end, and returns frames with them.
func reserve(t testing.TB, s *ports.State, sender, e end) map[string][]byte {
	s.Reserved = []netip.Addr{e.v4, e.v6}
	return map[string][]byte{"reserved": udp(t, sender.mac, e.v4, 53, 2), "reserved IPv6": udp(t, sender.mac, e.v6, 53, 2),
		"fragment": fragment4(t, sender.mac, e.v4, 2), "IPv6 fragment": fragment6(t, sender.mac, e.v6, 17, 2, make([]byte, 16)...)}
}
