package ipset

import (
	"bytes"
	"encoding/binary"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	headerLen    = unix.SizeofNlMsghdr
	nfgenLen     = 4 // struct nfgenmsg
	attrTypeMask = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
)

// packet is one netlink message.
type packet struct {
	kind  uint16
	flags uint16
	seq   uint32
	body  []byte
}

const errShort ErrorKind = "netlink message is cut short"

// nextPacket splits the first message off a buffer.
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

// failedLine returns the line number of the element that a batch stopped at, or 0 if the kernel blames none. The echo
// of the request has it, which is complete in that case only.
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

// slot returns the slot that an answer names.
func (p packet) slot() (slot int, err error) {
	err = p.find(attrSlot, func(a *attrs) { slot = int(a.u16()) })
	return slot, err
}

// name returns the name of the set that an answer is about, without a copy.
func (p packet) name() (name []byte, err error) {
	err = p.find(nl.IPSET_ATTR_SETNAME, func(a *attrs) { name = a.text() })
	return name, err
}

// find passes the attribute of a kind that an answer has to read. If the answer is an error, find returns that.
func (p packet) find(kind uint16, read func(*attrs)) error {
	if p.kind == unix.NLMSG_ERROR {
		code, err := p.code()
		if err != nil {
			return err
		}
		return KernelError{Code: code}
	}
	if len(p.body) < nfgenLen {
		return errShort
	}
	a := attrs{rest: p.body[nfgenLen:]}
	for a.next() {
		if a.kind == kind {
			read(&a)
			return a.err
		}
	}
	return errShort
}

// attrs iterates over attributes. It stops at the end or at the first malformed one, which sets err.
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
