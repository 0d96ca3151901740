package ipset

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	headerLen    = unix.SizeofNlMsghdr
	nfgenLen     = 4 // struct nfgenmsg
	attrLen      = unix.SizeofNlAttr
	attrTypeMask = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)

	minElement = 16 // bytes of the smallest element

	// flagListHeader is IPSET_FLAG_LIST_HEADER: headers without elements.
	flagListHeader = 1 << 2
)

// encoder appends messages to a buffer. Numbers of the netlink layer are in the machine's byte order, those of ipset in
// the network's.
type encoder struct{ buf []byte }

// message starts a message and returns where; end must follow.
func (e *encoder) message(command uint16, flags uint16, seq uint32) int {
	start := len(e.buf)
	e.buf = append(e.buf, 0, 0, 0, 0)
	e.buf = binary.NativeEndian.AppendUint16(e.buf, unix.NFNL_SUBSYS_IPSET<<8|command)
	e.buf = binary.NativeEndian.AppendUint16(e.buf, unix.NLM_F_REQUEST|flags)
	e.buf = binary.NativeEndian.AppendUint32(e.buf, seq)
	e.buf = append(e.buf, 0, 0, 0, 0)
	e.buf = append(e.buf, unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0)
	e.u8(nl.IPSET_ATTR_PROTOCOL, nl.IPSET_PROTOCOL)
	return start
}

// end fills in the length of the message that starts at start.
func (e *encoder) end(start int) {
	binary.NativeEndian.PutUint32(e.buf[start:], uint32(len(e.buf)-start))
}

// attr appends the header of an attribute with size bytes, which must follow, and then pad.
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

// nest starts a nested attribute and returns where; endNest must follow.
func (e *encoder) nest(kind uint16) int {
	start := len(e.buf)
	e.attr(kind|unix.NLA_F_NESTED, 0)
	return start
}

// endNest fills in the length of the nested attribute that starts at start.
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
	}
	e.endNest(data)
	e.end(start)
}

// named appends a request that has only the name of a set. It must not be empty: that would mean all sets.
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

// change appends a request to add or delete elements, as many as fit in limit bytes and at least one, and returns how
// many. The line number of an element is its index + 1.
func (e *encoder) change(kind OpKind, set string, elements []Element, limit int, seq uint32) int {
	command := uint16(nl.IPSET_CMD_ADD)
	if kind == Delete {
		command = nl.IPSET_CMD_DEL
	}
	start := e.message(command, unix.NLM_F_ACK, seq)
	e.str(nl.IPSET_ATTR_SETNAME, set)
	// Overwritten in the echo of the request, if an element fails.
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

// packet is one netlink message.
type packet struct {
	kind  uint16
	flags uint16
	seq   uint32
	body  []byte
}

const errShort ErrorKind = "netlink message is cut short"

// nextPacket takes the first message off a buffer.
func nextPacket(buf []byte) (packet, []byte, error) {
	if len(buf) < headerLen {
		return packet{}, nil, errShort
	}
	size := int64(binary.NativeEndian.Uint32(buf))
	if size < headerLen || size > int64(len(buf)) {
		return packet{}, nil, errShort
	}
	p := packet{
		kind:  binary.NativeEndian.Uint16(buf[4:]),
		flags: binary.NativeEndian.Uint16(buf[6:]),
		seq:   binary.NativeEndian.Uint32(buf[8:]),
		body:  buf[headerLen:size],
	}
	next := min((int(size)+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(buf))
	return p, buf[next:], nil
}

// code returns the error code of an NLMSG_ERROR or NLMSG_DONE, 0 for success.
func (p packet) code() (uint32, error) {
	if len(p.body) < 4 {
		if p.kind == unix.NLMSG_DONE {
			return 0, nil
		}
		return 0, errShort
	}
	code := int32(binary.NativeEndian.Uint32(p.body))
	if code > 0 {
		return 0, nil
	}
	return uint32(-code), nil
}

// failedLine returns the line number of the element that a batch stopped at, or 0 if none is to blame. It stands in the
// echo of the request, which is whole in that case only.
func (p packet) failedLine() uint32 {
	const before = 4 + headerLen + nfgenLen
	if p.flags&unix.NLM_F_CAPPED != 0 || len(p.body) < before {
		return 0
	}
	for a := (attrs{rest: p.body[before:]}); a.next(); {
		if a.kind == nl.IPSET_ATTR_LINENO && len(a.value) >= 4 {
			return binary.NativeEndian.Uint32(a.value)
		}
	}
	return 0
}

// attrs walks over attributes. It stops at the end and at the first that is malformed, which sets err.
type attrs struct {
	rest  []byte
	kind  uint16 // without flags
	value []byte
	err   error
}

func (a *attrs) next() bool {
	if len(a.rest) == 0 || a.err != nil {
		return false
	}
	if len(a.rest) < attrLen {
		a.err = errShort
		return false
	}
	size := int(binary.NativeEndian.Uint16(a.rest))
	if size < attrLen || size > len(a.rest) {
		a.err = errShort
		return false
	}
	a.kind = binary.NativeEndian.Uint16(a.rest[2:]) & attrTypeMask
	a.value = a.rest[attrLen:size]
	a.rest = a.rest[min((size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(a.rest)):]
	return true
}

func (a *attrs) u8() uint8 {
	if len(a.value) < 1 {
		a.err = errShort
		return 0
	}
	return a.value[0]
}

func (a *attrs) u16() uint16 {
	if len(a.value) < 2 {
		a.err = errShort
		return 0
	}
	return binary.BigEndian.Uint16(a.value)
}

func (a *attrs) u32() uint32 {
	if len(a.value) < 4 {
		a.err = errShort
		return 0
	}
	return binary.BigEndian.Uint32(a.value)
}

// text returns the value up to its NUL, without a copy.
func (a *attrs) text() []byte {
	text, _, _ := bytes.Cut(a.value, []byte{0})
	return text
}

// listing collects the sets of a dump.
type listing struct {
	prefix string
	sets   []Listing
}

// add takes the body of one message: a set, or the next part of the set before.
func (l *listing) add(body []byte) error {
	if len(body) < nfgenLen {
		return errShort
	}
	var (
		name, kind, data, elements []byte
		family                     uint8
	)
	a := attrs{rest: body[nfgenLen:]}
	for a.next() {
		switch a.kind {
		case nl.IPSET_ATTR_SETNAME:
			name = a.text()
		case nl.IPSET_ATTR_TYPENAME:
			kind = a.text()
		case nl.IPSET_ATTR_FAMILY:
			family = a.u8()
		case nl.IPSET_ATTR_DATA:
			data = a.value
		case nl.IPSET_ATTR_ADT:
			elements = a.value
		}
	}
	if a.err != nil {
		return a.err
	}
	if len(name) < len(l.prefix) || string(name[:len(l.prefix)]) != l.prefix {
		return nil
	}
	if kind == nil {
		if len(l.sets) == 0 || l.sets[len(l.sets)-1].Name != string(name) {
			return errors.Errorf("elements of set %q came without its header", name)
		}
		return l.sets[len(l.sets)-1].addMembers(elements)
	}
	l.sets = append(l.sets, Listing{})
	set := &l.sets[len(l.sets)-1]
	set.Name = string(name)
	set.Type = knownType(kind)
	set.Family = Family(family)
	if err := set.parse(data); err != nil {
		return err
	}
	return set.addMembers(elements)
}

// knownType saves the copy of the name of a type we know.
func knownType(name []byte) Type {
	switch Type(name) {
	case HashIP:
		return HashIP
	case HashNet:
		return HashNet
	case HashIPPort:
		return HashIPPort
	case ListSet:
		return ListSet
	}
	return Type(name)
}

// options are those that Create does not give, by their flag.
var options = []struct {
	flag uint32
	name string
}{{nl.IPSET_FLAG_WITH_COUNTERS, "counters"}, {nl.IPSET_FLAG_WITH_FORCEADD, "forceadd"}, {nl.IPSET_FLAG_WITH_SKBINFO, "skbinfo"}}

// parse reads the header's data.
func (h *Header) parse(data []byte) error {
	a := attrs{rest: data}
	var other []string
	for a.next() {
		switch a.kind {
		case nl.IPSET_ATTR_TIMEOUT:
			other = append(other, "timeout")
		case nl.IPSET_ATTR_NETMASK:
			other = append(other, "netmask")
		case nl.IPSET_ATTR_MAXELEM, nl.IPSET_ATTR_SIZE:
			h.Size = a.u32()
		case nl.IPSET_ATTR_ELEMENTS:
			h.Elements = a.u32()
		case nl.IPSET_ATTR_REFERENCES:
			h.References = a.u32()
		case nl.IPSET_ATTR_MEMSIZE:
			h.MemSize = a.u32()
		case nl.IPSET_ATTR_CADT_FLAGS:
			flags := a.u32()
			h.Comments = flags&nl.IPSET_FLAG_WITH_COMMENT != 0
			for _, o := range options {
				if flags&o.flag != 0 {
					other = append(other, o.name)
				}
			}
		}
	}
	if !h.Comments {
		other = append(other, "no comments")
	}
	h.Other = strings.Join(other, ", ")
	if h.Size == h.Type.maxSize() {
		h.Size = 0
	}
	return a.err
}

// addMembers reads elements.
func (l *Listing) addMembers(data []byte) error {
	if l.Members == nil {
		l.Members = make([]Element, 0, min(int(l.Elements), len(data)/minElement))
	}
	a := attrs{rest: data}
	for a.next() {
		if a.kind != nl.IPSET_ATTR_DATA {
			continue
		}
		var e Element
		if err := e.parse(a.value); err != nil {
			return err
		}
		l.Members = append(l.Members, e)
	}
	return a.err
}

// parse reads an element.
func (e *Element) parse(data []byte) error {
	var ip netip.Addr
	bits := -1
	a := attrs{rest: data}
	for a.next() {
		switch a.kind {
		case nl.IPSET_ATTR_IP:
			address, err := parseAddress(a.value)
			if err != nil {
				return err
			}
			ip = address
		case nl.IPSET_ATTR_CIDR:
			bits = int(a.u8())
		case nl.IPSET_ATTR_PORT:
			e.Port = a.u16()
		case nl.IPSET_ATTR_PROTO:
			e.Proto = a.u8()
		case nl.IPSET_ATTR_CADT_FLAGS:
			e.NoMatch = a.u32()&nl.IPSET_FLAG_NOMATCH != 0
		case nl.IPSET_ATTR_NAME:
			e.Set = string(a.text())
		case nl.IPSET_ATTR_COMMENT:
			e.Comment = string(a.text())
		}
	}
	if a.err != nil {
		return a.err
	}
	if !ip.IsValid() {
		return nil
	}
	if bits < 0 {
		bits = ip.BitLen()
	}
	e.Prefix = netip.PrefixFrom(ip, bits)
	return nil
}

func parseAddress(data []byte) (netip.Addr, error) {
	a := attrs{rest: data}
	if !a.next() {
		return netip.Addr{}, errors.New("element has no address")
	}
	ip, ok := netip.AddrFromSlice(a.value)
	if !ok {
		return netip.Addr{}, errShort
	}
	return ip, nil
}
