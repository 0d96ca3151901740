package domainnames

import (
	"encoding/binary"
	"net/netip"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

const (
	ipv4Header   = 20
	ipv6Header   = 40
	udpHeader    = 8
	tcpHeader    = 20
	fragmentLen  = 8
	tcpChecksum  = 16 // offset of the checksum in the header
	flagSYN      = 1 << 1
	flagRST      = 1 << 2
	flagACK      = 1 << 4
	flagURG      = 1 << 5
	moreIsToCome = 1 << 13 // in IPv4's fragment field
)

var errPacket = errors.New("malformed packet")

// packet is a UDP or TCP packet of a DNS server.
type packet struct {
	raw       []byte // without what follows the IP packet
	transport int    // offset of the UDP or TCP header
	proto     uint8
	from, to  netip.AddrPort
	payload   []byte
	seq       uint32 // TCP
	flags     uint8  // TCP
}

// parsePacket reads an IP packet, whole or put together from fragments.
func parsePacket(raw []byte) (packet, error) {
	if len(raw) == 0 {
		return packet{}, errPacket
	}
	var p packet
	var from, to netip.Addr
	var err error
	switch raw[0] >> 4 {
	case 4:
		from, to, err = p.ipv4(raw)
	case 6:
		from, to, err = p.ipv6(raw)
	default:
		err = errPacket
	}
	if err != nil {
		return packet{}, err
	}
	body := p.raw[p.transport:]
	if len(body) < udpHeader {
		return packet{}, errPacket
	}
	p.from = netip.AddrPortFrom(from, binary.BigEndian.Uint16(body))
	p.to = netip.AddrPortFrom(to, binary.BigEndian.Uint16(body[2:]))
	switch p.proto {
	case unix.IPPROTO_UDP:
		return p, p.udp(body)
	case unix.IPPROTO_TCP:
		return p, p.tcp(body)
	}
	return packet{}, errors.Wrapf(errPacket, "protocol %d", p.proto)
}

func (p *packet) ipv4(raw []byte) (from, to netip.Addr, err error) {
	if len(raw) < ipv4Header {
		return from, to, errPacket
	}
	header, size := int(raw[0]&0xf)*4, int(binary.BigEndian.Uint16(raw[2:]))
	fragment := binary.BigEndian.Uint16(raw[6:])
	if header < ipv4Header || size < header || size > len(raw) || fragment&(moreIsToCome|(moreIsToCome-1)) != 0 {
		return from, to, errPacket
	}
	p.raw, p.transport, p.proto = raw[:size], header, raw[9]
	return netip.AddrFrom4([4]byte(raw[12:])), netip.AddrFrom4([4]byte(raw[16:])), nil
}

func (p *packet) ipv6(raw []byte) (from, to netip.Addr, err error) {
	if len(raw) < ipv6Header {
		return from, to, errPacket
	}
	size := ipv6Header + int(binary.BigEndian.Uint16(raw[4:]))
	if size > len(raw) {
		return from, to, errPacket
	}
	p.raw, p.transport, p.proto = raw[:size], ipv6Header, raw[6]
	for {
		extension := p.raw[p.transport:]
		var length int
		switch p.proto {
		case unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_DSTOPTS:
			if len(extension) < 2 {
				return from, to, errPacket
			}
			length = (int(extension[1]) + 1) * 8
		case unix.IPPROTO_FRAGMENT:
			if len(extension) < fragmentLen || binary.BigEndian.Uint16(extension[2:])&0xfff9 != 0 {
				return from, to, errPacket
			}
			length = fragmentLen
		default:
			return netip.AddrFrom16([16]byte(raw[8:])), netip.AddrFrom16([16]byte(raw[24:])), nil
		}
		if length > len(extension) {
			return from, to, errPacket
		}
		p.proto, p.transport = extension[0], p.transport+length
	}
}

func (p *packet) udp(body []byte) error {
	size := int(binary.BigEndian.Uint16(body[4:]))
	if size < udpHeader || size > len(body) {
		return errPacket
	}
	p.payload = body[udpHeader:size]
	return nil
}

func (p *packet) tcp(body []byte) error {
	if len(body) < tcpHeader {
		return errPacket
	}
	offset := int(body[12]>>4) * 4
	if offset < tcpHeader || offset > len(body) {
		return errPacket
	}
	p.seq, p.flags, p.payload = binary.BigEndian.Uint32(body[4:]), body[13], body[offset:]
	return nil
}

// reset returns a TCP packet that ends the connection in place of the packet.
func (p *packet) reset() []byte {
	out := append([]byte(nil), p.raw[:p.transport+tcpHeader]...)
	header, segment := out[:p.transport], out[p.transport:]
	segment[12] = tcpHeader / 4 << 4
	segment[13] = flagRST | p.flags&flagACK
	clear(segment[14:]) // window, checksum, urgent pointer
	from, to := p.from.Addr().AsSlice(), p.to.Addr().AsSlice()
	pseudo := append(append([]byte(nil), from...), to...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, tcpHeader)
	pseudo = binary.BigEndian.AppendUint32(pseudo, unix.IPPROTO_TCP)
	binary.BigEndian.PutUint16(segment[tcpChecksum:], ^sum(append(pseudo, segment...)))
	if p.from.Addr().Is6() {
		binary.BigEndian.PutUint16(header[4:], uint16(len(out)-ipv6Header))
		return out
	}
	binary.BigEndian.PutUint16(header[2:], uint16(len(out)))
	binary.BigEndian.PutUint16(header[10:], 0)
	binary.BigEndian.PutUint16(header[10:], ^sum(header))
	return out
}

// sum returns the Internet checksum's sum of words, an even number of bytes.
func sum(b []byte) uint16 {
	var total uint32
	for ; len(b) > 1; b = b[2:] {
		total += uint32(binary.BigEndian.Uint16(b))
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}
