package conntrack

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Bits of nf_conntrack_common.h and nf_conntrack_tcp.h, and a state of the latter.
const (
	statusExpected  = 1 << 0
	statusReplied   = 1 << 1
	statusAssured   = 1 << 2
	statusConfirmed = 1 << 3
	statusDying     = 1 << 9
	statusFixedEnd  = 1 << 10
	statusOffload   = 1 << 14
	statusHardware  = 1 << 15
	flagLiberal     = 1 << 3
	stateClose      = 8
)

// Entry is a connection as the kernel tracks it.
type Entry struct {
	// Source and Destination are the ends, and Port the destination's port, as rules in FORWARD see them: after the
	// translation of the destination and before that of the source. Port is 0 of a protocol without ports.
	Source, Destination netip.Addr
	Port                uint16
	Protocol            uint8
	// SourcePort is the source's port.
	SourcePort uint16
	// Liberal tells that the kernel does not check the sequence numbers of a TCP connection. It does not of one that it
	// took up in mid-stream, of which Source may be the end that was connected to, and of one that was offloaded.
	Liberal bool
	Mark    uint32
	// Name is that of the entry in the table, and Master that of the entry that led to it, such as the control
	// connection of a transfer of files. Master is empty if there is none.
	Name, Master string

	family   uint8
	identity string // the attributes by which the kernel finds the entry
	status   uint32
	expiry   uint32 // seconds
	state    uint8  // of TCP
}

// Pinned reports whether the entry expires at a fixed time, whatever packets there are.
func (e *Entry) Pinned() bool { return e.status&statusFixedEnd != 0 }

// Offloaded reports whether packets of the connection may pass without meeting rules.
func (e *Entry) Offloaded() bool { return e.status&(statusOffload|statusHardware) != 0 }

// readEntry reads a connection whose ends are known.
//
// The kernel is to find it by the reply direction, which is what is judged: addresses and ports behind a Service's. If
// another connection of the same client to the same Service takes the place of this one, but leads to another pod, it
// is not found.
func readEntry(attrs []byte, ends *[4]netip.Addr) Entry {
	e := Entry{Source: ends[0], Destination: ends[2], family: familyOf(ends[0])}
	var orig, reply, zone, id, master []byte
	for len(attrs) > 0 {
		kind, whole, value, rest := attribute(attrs)
		switch kind {
		case tupleOrig:
			orig = value
			_, e.SourcePort = readPort(value)
		case tupleReply:
			reply = whole
			e.Protocol, e.Port = readPort(value)
		case attrZone:
			zone = whole
		case attrID:
			id = whole
		case attrMaster:
			master = value
		case attrStatus:
			e.status = number(value)
		case attrProto:
			e.state, e.Liberal = readTCP(value)
		case attrExpiry:
			e.expiry = number(value)
		case attrMark:
			e.Mark = number(value)
		}
		attrs = rest
	}
	var space [256]byte
	text := append(append(space[:0], zone...), orig...)
	name := len(text)
	text = append(appendPadded(appendPadded(text, reply), zone), id...)
	all := string(text)
	e.Name, e.identity = all[:name], all[name:]
	if master != nil {
		e.Master = string(zone) + string(master)
	}
	return e
}

// readPort reads the protocol and the source port of a direction.
func readPort(tuple []byte) (protocol uint8, port uint16) {
	var proto []byte
	for len(tuple) > 0 {
		kind, _, value, rest := attribute(tuple)
		if kind == tupleProto {
			proto = value
		}
		tuple = rest
	}
	for len(proto) > 0 {
		kind, _, value, rest := attribute(proto)
		switch {
		case kind == protoNum && len(value) == 1:
			protocol = value[0]
		case kind == protoSrc && len(value) == 2:
			port = binary.BigEndian.Uint16(value)
		}
		proto = rest
	}
	switch protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_UDPLITE, unix.IPPROTO_SCTP, unix.IPPROTO_DCCP:
		return protocol, port
	}
	return protocol, 0 // GRE has its key there
}

// readTCP reads what the kernel knows of a TCP connection.
func readTCP(info []byte) (state uint8, liberal bool) {
	kind, _, info, _ := attribute(info)
	if kind != infoTCP {
		return 0, false
	}
	for len(info) > 0 {
		kind, _, value, rest := attribute(info)
		switch {
		case len(value) == 0:
		case kind == tcpState:
			state = value[0]
		case kind == tcpFlags, kind == tcpFlags2:
			liberal = liberal || value[0]&flagLiberal != 0
		}
		info = rest
	}
	return state, liberal
}
