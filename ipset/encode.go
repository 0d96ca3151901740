package ipset

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	attrLen = unix.SizeofNlAttr

	// flagListHeader is IPSET_FLAG_LIST_HEADER: headers without elements.
	flagListHeader = 1 << 2

	// slotProtocol is the version of the protocol that has the commands about slots, which take no other.
	slotProtocol = 7
	// commandSlotOf is IPSET_CMD_GET_BYNAME and commandInSlot IPSET_CMD_GET_BYINDEX.
	commandSlotOf = 14
	commandInSlot = 15
	// attrSlot is IPSET_ATTR_INDEX.
	attrSlot = 11
)

// encoder appends messages to a buffer. Numbers of the netlink layer are in the machine's byte order, those of ipset in
// network byte order.
type encoder struct{ buf []byte }

// message starts a message and returns its offset, which the caller passes to end.
func (e *encoder) message(command uint16, flags uint16, seq uint32) int {
	start := len(e.buf)
	e.buf = append(e.buf, 0, 0, 0, 0)
	e.buf = binary.NativeEndian.AppendUint16(e.buf, unix.NFNL_SUBSYS_IPSET<<8|command)
	e.buf = binary.NativeEndian.AppendUint16(e.buf, unix.NLM_F_REQUEST|flags)
	e.buf = binary.NativeEndian.AppendUint32(e.buf, seq)
	e.buf = append(e.buf, 0, 0, 0, 0)
	e.buf = append(e.buf, unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0)
	if command == commandSlotOf || command == commandInSlot {
		e.u8(nl.IPSET_ATTR_PROTOCOL, slotProtocol)
	} else {
		e.u8(nl.IPSET_ATTR_PROTOCOL, nl.IPSET_PROTOCOL)
	}
	return start
}

// end fills in the length of the message at offset start.
func (e *encoder) end(start int) {
	binary.NativeEndian.PutUint32(e.buf[start:], uint32(len(e.buf)-start))
}

// attr appends the header of an attribute. The caller appends the value, which has size bytes, and then calls pad.
func (e *encoder) attr(kind uint16, size int) {
	e.buf = binary.NativeEndian.AppendUint16(e.buf, uint16(attrLen+size))
	e.buf = binary.NativeEndian.AppendUint16(e.buf, kind)
}

func (e *encoder) pad() {
	for len(e.buf)%unix.NLA_ALIGNTO != 0 {
		e.buf = append(e.buf, 0)
	}
}

func (e *encoder) u8(kind uint16, value uint8) {
	e.attr(kind, 1)
	e.buf = append(e.buf, value, 0, 0, 0)
}

func (e *encoder) u16(kind uint16, value uint16) {
	e.attr(kind|unix.NLA_F_NET_BYTEORDER, 2)
	e.buf = binary.BigEndian.AppendUint16(e.buf, value)
	e.pad()
}

func (e *encoder) u32(kind uint16, value uint32) {
	e.attr(kind|unix.NLA_F_NET_BYTEORDER, 4)
	e.buf = binary.BigEndian.AppendUint32(e.buf, value)
}

// line appends a line number, which ipset keeps in the machine's byte order.
func (e *encoder) line(value uint32) {
	e.attr(nl.IPSET_ATTR_LINENO, 4)
	e.buf = binary.NativeEndian.AppendUint32(e.buf, value)
}

func (e *encoder) str(kind uint16, value string) {
	e.attr(kind, len(value)+1)
	e.buf = append(e.buf, value...)
	e.buf = append(e.buf, 0)
	e.pad()
}

// nest starts a nested attribute and returns its offset, which the caller passes to endNest.
func (e *encoder) nest(kind uint16) int {
	start := len(e.buf)
	e.attr(kind|unix.NLA_F_NESTED, 0)
	return start
}

// endNest fills in the length of the nested attribute at offset start.
func (e *encoder) endNest(start int) {
	binary.NativeEndian.PutUint16(e.buf[start:], uint16(len(e.buf)-start))
}

// create appends the request to create a set.
func (e *encoder) create(set Set, hashSize uint32, flags uint16, seq uint32) {
	revision, _ := set.Type.revision()
	start := e.message(nl.IPSET_CMD_CREATE, unix.NLM_F_ACK|unix.NLM_F_CREATE|flags, seq)
	e.str(nl.IPSET_ATTR_SETNAME, set.Name)
	e.str(nl.IPSET_ATTR_TYPENAME, string(set.Type))
	e.u8(nl.IPSET_ATTR_REVISION, revision)
	if set.Type == ListSet {
		e.u8(nl.IPSET_ATTR_FAMILY, unix.NFPROTO_UNSPEC)
	} else {
		e.u8(nl.IPSET_ATTR_FAMILY, uint8(set.Family))
	}
	data := e.nest(nl.IPSET_ATTR_DATA)
	e.u32(nl.IPSET_ATTR_CADT_FLAGS, nl.IPSET_FLAG_WITH_COMMENT)
	if set.Type == ListSet {
		e.u32(nl.IPSET_ATTR_SIZE, set.limit())
	} else {
		e.u32(nl.IPSET_ATTR_MAXELEM, set.limit())
		e.u32(nl.IPSET_ATTR_HASHSIZE, hashSize)
		if set.Timeout > 0 {
			e.u32(nl.IPSET_ATTR_TIMEOUT, set.Timeout)
		}
	}
	e.endNest(data)
	e.end(start)
}

// named appends a request that has only the name of a set. The name must not be empty: that would mean all sets.
func (e *encoder) named(command uint16, name string, seq uint32) {
	start := e.message(command, unix.NLM_F_ACK, seq)
	e.str(nl.IPSET_ATTR_SETNAME, name)
	e.end(start)
}

// list appends the request to dump one set, or all if the name is empty.
func (e *encoder) list(name string, headersOnly bool, seq uint32) {
	start := e.message(nl.IPSET_CMD_LIST, unix.NLM_F_DUMP, seq)
	if name != "" {
		e.str(nl.IPSET_ATTR_SETNAME, name)
	}
	if headersOnly {
		e.u32(nl.IPSET_ATTR_FLAGS, flagListHeader)
	}
	e.end(start)
}

// change appends a request to add or delete the first elements: as many as fit in limit bytes, and at least one. It
// returns their number. The line number of an element is its index + 1.
func (e *encoder) change(kind OpKind, set string, elements []Element, limit int, seq uint32) int {
	command := uint16(nl.IPSET_CMD_ADD)
	if kind == Delete {
		command = nl.IPSET_CMD_DEL
	}
	start := e.message(command, unix.NLM_F_ACK, seq)
	e.str(nl.IPSET_ATTR_SETNAME, set)
	// The kernel overwrites it in the echo of the request if an element fails.
	e.line(0)
	batch := e.nest(nl.IPSET_ATTR_ADT)
	count := 0
	for count < len(elements) {
		before := len(e.buf)
		e.element(kind, &elements[count], uint32(count+1))
		if count > 0 && len(e.buf)-start > limit {
			e.buf = e.buf[:before]
			break
		}
		count++
	}
	e.endNest(batch)
	e.end(start)
	return count
}

// element appends one element of a batch.
func (e *encoder) element(kind OpKind, el *Element, line uint32) {
	data := e.nest(nl.IPSET_ATTR_DATA)
	e.line(line)
	if el.Set != "" {
		e.str(nl.IPSET_ATTR_NAME, el.Set)
	} else {
		e.address(el.Prefix.Addr())
		if !el.Prefix.IsSingleIP() {
			e.u8(nl.IPSET_ATTR_CIDR, uint8(el.Prefix.Bits()))
		}
		if el.Proto != 0 {
			e.u16(nl.IPSET_ATTR_PORT, el.Port)
			e.u8(nl.IPSET_ATTR_PROTO, el.Proto)
		}
	}
	if kind != Delete {
		if el.Timeout > 0 {
			e.u32(nl.IPSET_ATTR_TIMEOUT, el.Timeout)
		}
		if el.NoMatch {
			e.u32(nl.IPSET_ATTR_CADT_FLAGS, nl.IPSET_FLAG_NOMATCH)
		}
		if el.Comment != "" {
			e.str(nl.IPSET_ATTR_COMMENT, el.Comment)
		}
	}
	e.endNest(data)
}

func (e *encoder) address(a netip.Addr) {
	ip := e.nest(nl.IPSET_ATTR_IP)
	if a.Is4() {
		raw := a.As4()
		e.attr(nl.IPSET_ATTR_IPADDR_IPV4|unix.NLA_F_NET_BYTEORDER, len(raw))
		e.buf = append(e.buf, raw[:]...)
	} else {
		raw := a.As16()
		e.attr(nl.IPSET_ATTR_IPADDR_IPV6|unix.NLA_F_NET_BYTEORDER, len(raw))
		e.buf = append(e.buf, raw[:]...)
	}
	e.endNest(ip)
}
