package ulogd

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"time"

	"github.com/pkg/errors"
)

// Packet is the decoded header of one logged packet.
type Packet struct {
	// Group is the name of the NFLOG group of the packet.
	Group string
	// Time is the time at which the kernel or, failing that, ulogd2 saw the packet; in microseconds, UTC.
	Time time.Time
	// Src and Dst are the addresses in the IP header, without a zone.
	Src, Dst netip.Addr
	// Protocol is the IP protocol number after IPv6 extension headers, as iptables -p compares it.
	Protocol uint8
	// SrcPort and DstPort are set for TCP, UDP and SCTP.
	SrcPort, DstPort uint16
	// ICMPType and ICMPCode are set for ICMP and ICMPv6.
	ICMPType, ICMPCode uint8
	// TCPFlags are FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128 (RFC 9293, 3.1).
	TCPFlags uint8
	// Fragment is set for a fragment other than the first. It has no ports, type or flags.
	Fragment bool
	// Truncated is set if the logged part ends before all fields of Protocol. The missing fields are zero.
	Truncated bool
	// Length is the length of the whole packet on the wire in bytes, IP header included.
	Length int
}

// Protocol numbers (IANA, "Protocol Numbers").
const (
	protoHopByHop = 0
	protoICMP     = 1
	protoTCP      = 6
	protoUDP      = 17
	protoRouting  = 43
	protoFragment = 44
	protoAH       = 51
	protoICMPv6   = 58
	protoDestOpts = 60
	protoSCTP     = 132
)

const (
	ipv4MinHeader = 20
	ipv6Header    = 40
)

// ProtocolName returns TCP, UDP, SCTP, ICMP or ICMPv6, or the protocol's number.
func (p Packet) ProtocolName() string {
	switch p.Protocol {
	case protoTCP:
		return "TCP"
	case protoUDP:
		return "UDP"
	case protoSCTP:
		return "SCTP"
	case protoICMP:
		return "ICMP"
	case protoICMPv6:
		return "ICMPv6"
	}
	return strconv.Itoa(int(p.Protocol))
}

// decode decodes a packet that begins with its IPv4 or IPv6 header (LINKTYPE_RAW) and may end anywhere after the
// addresses. It fails if there is no complete IP header. It does not set Group and Time, and the result does not refer
// to b.
func decode(b []byte) (Packet, error) {
	if len(b) == 0 {
		return Packet{}, errors.New("empty packet")
	}
	switch version := b[0] >> 4; version {
	case 4:
		return decodeIPv4(b)
	case 6:
		return decodeIPv6(b)
	default:
		return Packet{}, errors.Errorf("IP version %d", version)
	}
}

// decodeIPv4 decodes a packet according to RFC 791, 3.1.
func decodeIPv4(b []byte) (Packet, error) {
	if len(b) < ipv4MinHeader {
		return Packet{}, errors.Errorf("%d bytes of an IPv4 header", len(b))
	}
	header := int(b[0]&0x0f) * 4
	if header < ipv4MinHeader {
		return Packet{}, errors.Errorf("IPv4 header of %d bytes", header)
	}
	p := Packet{
		Src:      netip.AddrFrom4([4]byte(b[12:16])),
		Dst:      netip.AddrFrom4([4]byte(b[16:20])),
		Protocol: b[9],
		Length:   int(binary.BigEndian.Uint16(b[2:4])),
	}
	if p.Length == 0 { // larger than 64 KiB (BIG TCP): the header cannot hold the length
		p.Length = len(b)
	}
	p.Fragment = binary.BigEndian.Uint16(b[6:8])&0x1fff != 0
	if header > len(b) {
		p.Truncated = !p.Fragment
		return p, nil
	}
	p.decodeTransport(b[header:min(len(b), max(header, p.Length))])
	return p, nil
}

// decodeIPv6 decodes a packet according to RFC 8200, 3. It skips the extension headers that the kernel's own matches
// skip.
func decodeIPv6(b []byte) (Packet, error) {
	if len(b) < ipv6Header {
		return Packet{}, errors.Errorf("%d bytes of an IPv6 header", len(b))
	}
	p := Packet{
		Src:      netip.AddrFrom16([16]byte(b[8:24])),
		Dst:      netip.AddrFrom16([16]byte(b[24:40])),
		Protocol: b[6],
		Length:   ipv6Header + int(binary.BigEndian.Uint16(b[4:6])),
	}
	if p.Length == ipv6Header { // a jumbogram, or no payload at all
		p.Length = len(b)
	}
	rest := b[ipv6Header:min(len(b), p.Length)]
	for !p.Fragment {
		size, ok := extensionSize(p.Protocol, rest)
		if !ok {
			p.Truncated = true
			return p, nil
		}
		if size == 0 {
			break
		}
		if p.Protocol == protoFragment {
			p.Fragment = binary.BigEndian.Uint16(rest[2:4])&0xfff8 != 0
		}
		p.Protocol, rest = rest[0], rest[size:]
	}
	p.decodeTransport(rest)
	return p, nil
}

// extensionSize returns the size in bytes of the extension header at the start of b, or 0 if kind is not an extension
// header, and whether b contains all of it.
func extensionSize(kind uint8, b []byte) (int, bool) {
	var size int
	switch kind {
	case protoFragment:
		size = 8
	case protoHopByHop, protoRouting, protoDestOpts, protoAH:
		if len(b) < 2 {
			return 0, false
		}
		size = (int(b[1]) + 1) * 8
		if kind == protoAH { // in units of 4 bytes (RFC 4302, 2.2)
			size = (int(b[1]) + 2) * 4
		}
	}
	return size, size <= len(b)
}

// decodeTransport decodes the ports, or type and code, and flags of the transport header at the start of b.
func (p *Packet) decodeTransport(b []byte) {
	if p.Fragment {
		return
	}
	switch p.Protocol {
	case protoTCP, protoUDP, protoSCTP:
		if len(b) < 4 {
			p.Truncated = true
			return
		}
		p.SrcPort, p.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	case protoICMP, protoICMPv6:
		if len(b) < 2 {
			p.Truncated = true
			return
		}
		p.ICMPType, p.ICMPCode = b[0], b[1]
	}
	if p.Protocol != protoTCP {
		return
	}
	if len(b) < 14 {
		p.Truncated = true
		return
	}
	p.TCPFlags = b[13]
}
