package events

import (
	"encoding/binary"
	"net/netip"
)

// Attributes of nfnetlink_conntrack.h.
const (
	attrOrig      = 1
	attrReply     = 2
	attrStatus    = 3
	attrProtoinfo = 4
	attrZone      = 18

	tupleIP    = 1
	tupleProto = 2
	ipSrc4     = 1
	ipSrc6     = 3
	protoNum   = 1
	protoSrc   = 2
	infoTCP    = 1
	tcpState   = 1

	headerLen = 16
	nfgenLen  = 4
	attrLen   = 4
	attrMask  = 0x3fff

	statusExpected  = 1 << 0
	statusSeenReply = 1 << 1
	// tcpSynSent is TCP_CONNTRACK_SYN_SENT: the first packet was a SYN.
	tcpSynSent = 1
)

// message is what an event says.
type message struct {
	connection Connection
	tcpState   uint8
	zone       uint16
	status     uint32
}

// read reads the first message of a datagram, and returns the rest.
func (m *message) read(b []byte) (rest []byte, ok bool) {
	if len(b) < headerLen+nfgenLen {
		return nil, false
	}
	size := int(binary.NativeEndian.Uint32(b))
	if size < headerLen+nfgenLen || size > len(b) {
		return nil, false
	}
	m.readAttributes(b[headerLen+nfgenLen : size])
	return b[min((size+3)&^3, len(b)):], m.connection.Src.IsValid() && m.connection.Dst.IsValid()
}

func (m *message) readAttributes(attrs []byte) {
	for len(attrs) > 0 {
		var kind uint16
		var value []byte
		kind, value, attrs = attribute(attrs)
		switch kind {
		case attrOrig:
			m.connection.Src, m.connection.Protocol, _ = readTuple(value)
		case attrReply:
			m.connection.Dst, _, m.connection.Port = readTuple(value)
		case attrStatus:
			if len(value) == 4 {
				m.status = binary.BigEndian.Uint32(value)
			}
		case attrProtoinfo:
			if state := find(find(value, infoTCP), tcpState); len(state) == 1 {
				m.tcpState = state[0]
			}
		case attrZone:
			if len(value) == 2 {
				m.zone = binary.BigEndian.Uint16(value)
			}
		}
	}
}

// readTuple reads the source, the protocol and the source's port of one direction.
func readTuple(tuple []byte) (src netip.Addr, protocol uint8, port uint16) {
	for len(tuple) > 0 {
		var kind uint16
		var value []byte
		switch kind, value, tuple = attribute(tuple); kind {
		case tupleIP:
			text := find(value, ipSrc4)
			if text == nil {
				text = find(value, ipSrc6)
			}
			src, _ = netip.AddrFromSlice(text)
		case tupleProto:
			if number := find(value, protoNum); len(number) == 1 {
				protocol = number[0]
			}
			if number := find(value, protoSrc); len(number) == 2 {
				port = binary.BigEndian.Uint16(number)
			}
		}
	}
	return src, protocol, port
}

// find returns the value of the first attribute of a kind; nil if there is none.
func find(attrs []byte, kind uint16) []byte {
	for len(attrs) > 0 {
		k, value, rest := attribute(attrs)
		if k == kind {
			return value
		}
		attrs = rest
	}
	return nil
}

// attribute splits the first attribute off. It returns an empty rest after the last attribute or a malformed one.
func attribute(b []byte) (kind uint16, value, rest []byte) {
	if len(b) < attrLen {
		return 0, nil, nil
	}
	size := int(binary.NativeEndian.Uint16(b))
	if size < attrLen || size > len(b) {
		return 0, nil, nil
	}
	return binary.NativeEndian.Uint16(b[2:]) & attrMask, b[attrLen:size], b[min((size+3)&^3, len(b)):]
}
