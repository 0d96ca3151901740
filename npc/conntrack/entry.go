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
	stateSYNSent    = 1
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
	// Liberal reports that the kernel does not check the sequence numbers of a TCP connection: it was picked up in
	// mid-stream, so that Source may be the server, or it was offloaded.
	Liberal bool
	Mark    uint32
	Zone    uint16
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

// readEntry reads a connection with its names.
//
// The kernel looks the connection up by the reply direction, whose addresses and ports are those behind a Service;
// policies are evaluated with them too. If another connection of the same client to the same Service takes the place of
// this one, but goes to another pod, it is not found.
func readEntry(attrs []byte) Entry {
	var e Entry
	names := e.read(attrs)
	var space [256]byte
	text := append(append(space[:0], names.zone...), names.orig...)
	name := len(text)
	text = append(appendPadded(appendPadded(text, names.reply), names.zone), names.id...)
	all := string(text)
	e.Name, e.identity = all[:name], all[name:]
	if names.master != nil {
		e.Master = string(names.zone) + string(names.master)
	}
	return e
}

// names are the attributes that name a connection.
type names struct{ orig, reply, zone, id, master []byte }

// read reads all but the names of a connection into an empty entry, without allocating. It returns the attributes of
// the names.
func (e *Entry) read(attrs []byte) (n names) {
	for len(attrs) > 0 {
		kind, whole, value, rest := attribute(attrs)
		switch kind {
		case tupleOrig:
			n.orig = value
			e.Source, _, e.SourcePort = readSource(value)
			e.family = familyOf(e.Source)
		case tupleReply:
			n.reply = whole
			e.Destination, e.Protocol, e.Port = readSource(value)
		case attrZone:
			n.zone = whole
			if len(value) == 2 {
				e.Zone = binary.BigEndian.Uint16(value)
			}
		case attrID:
			n.id = whole
		case attrMaster:
			n.master = value
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
	return n
}

// readSource reads the source's address, the protocol and the source's port of a direction.
func readSource(tuple []byte) (source netip.Addr, protocol uint8, port uint16) {
	for len(tuple) > 0 {
		part, _, value, rest := attribute(tuple)
		tuple = rest
		for len(value) > 0 {
			kind, _, v, more := attribute(value)
			switch {
			case part == tupleIP && (kind == ipSrc4 || kind == ipSrc6):
				source, _ = netip.AddrFromSlice(v)
			case part == tupleProto && kind == protoNum && len(v) == 1:
				protocol = v[0]
			case part == tupleProto && kind == protoSrc && len(v) == 2:
				port = binary.BigEndian.Uint16(v)
			}
			value = more
		}
	}
	switch protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_UDPLITE, unix.IPPROTO_SCTP, unix.IPPROTO_DCCP:
		return source, protocol, port
	}
	return source, protocol, 0 // GRE has its key there
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
