package conntrack

import (
	"encoding/binary"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

const (
	// receiveTimeout bounds the wait for the kernel, in seconds.
	receiveTimeout = 10
	// largestMessage is large enough for a part of a listing, which has at most 32 KiB.
	largestMessage = 64 << 10

	headerLen = 16
	nfgenLen  = 4
	attrLen   = 4
)

// Messages and attributes of nfnetlink_conntrack.h.
const (
	subsystem  = 1 << 8
	msgNew     = subsystem
	msgGet     = subsystem | 1
	msgDelete  = subsystem | 2
	tupleOrig  = 1
	tupleReply = 2
	attrStatus = 3
	attrProto  = 4
	attrExpiry = 7
	attrMark   = 8
	attrID     = 12
	attrMaster = 14
	attrZone   = 18
	attrMask   = 21
	tupleIP    = 1
	tupleProto = 2
	ipSrc4     = 1
	ipDst4     = 2
	ipSrc6     = 3
	ipDst6     = 4
	protoNum   = 1
	protoSrc   = 2
	infoTCP    = 1
	tcpState   = 1
	tcpFlags   = 4 // of the original direction
	tcpFlags2  = 5 // of the reply direction
	kindMask   = 0x3fff
)

// errInterrupted is the error of a listing that is incomplete because the table changed.
var errInterrupted = errors.New("the table was changed while it was listed")

// errMalformed is the error of a message from the kernel that cannot be read.
var errMalformed = errors.New("the kernel sent a malformed message")

// conn is a netlink socket in the network namespace of the thread that opened it.
type conn struct {
	fd  int
	seq uint32
	in  []byte
}

// dial opens a socket. flags are those of socket(2) beyond the usual ones.
func dial(flags int) (*conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|flags, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, errors.Wrap(err, "opening a netlink socket")
	}
	timeout := unix.Timeval{Sec: receiveTimeout}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		_ = unix.Close(fd)
		return nil, errors.Wrap(err, "setting the timeout of a netlink socket")
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		_ = unix.Close(fd)
		return nil, errors.Wrap(err, "binding a netlink socket")
	}
	return &conn{fd: fd, in: make([]byte, largestMessage)}, nil
}

// close closes the socket. An error would not matter.
func (c *conn) close() { _ = unix.Close(c.fd) }

// message appends a message with encoded attributes.
func (c *conn) message(out []byte, kind, flags uint16, family uint8, attrs ...[]byte) []byte {
	c.seq++
	start := len(out)
	out = binary.NativeEndian.AppendUint32(out, 0)
	out = binary.NativeEndian.AppendUint16(out, kind)
	out = binary.NativeEndian.AppendUint16(out, flags)
	out = binary.NativeEndian.AppendUint32(out, c.seq)
	out = binary.NativeEndian.AppendUint32(out, 0)
	out = append(out, family, 0, 0, 0)
	for _, a := range attrs {
		out = appendPadded(out, a)
	}
	binary.NativeEndian.PutUint32(out[start:], uint32(len(out)-start))
	return out
}

func (c *conn) send(b []byte) error {
	for {
		err := unix.Sendto(c.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if !errors.Is(err, unix.EINTR) {
			return errors.Wrap(err, "sending to the kernel")
		}
	}
}

// answer is a message from the kernel.
type answer struct {
	kind, flags uint16
	seq         uint32
	body        []byte
}

// code returns the error in an error message, or nil for an acknowledgement.
func (a answer) code() error {
	if len(a.body) < 4 {
		return errMalformed
	}
	if code := int32(binary.NativeEndian.Uint32(a.body)); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// split splits the first message off a datagram.
func split(b []byte) (first answer, rest []byte, err error) {
	if len(b) < headerLen {
		return answer{}, nil, errMalformed
	}
	size := int(binary.NativeEndian.Uint32(b))
	if size < headerLen || size > len(b) {
		return answer{}, nil, errMalformed
	}
	first = answer{kind: binary.NativeEndian.Uint16(b[4:]), flags: binary.NativeEndian.Uint16(b[6:]),
		seq: binary.NativeEndian.Uint32(b[8:]), body: b[headerLen:size]}
	return first, b[min((size+3)&^3, len(b)):], nil
}

// read returns the next datagram of the kernel, which is valid until the next call. It returns nil if none comes in
// time.
func (c *conn) read() ([]byte, error) {
	for {
		n, from, err := unix.Recvfrom(c.fd, c.in, unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return nil, nil
		case err != nil:
			return nil, errors.Wrap(err, "receiving from the kernel")
		case n > len(c.in):
			return nil, errors.Errorf("the kernel sent %d bytes at once", n)
		}
		if sender, ok := from.(*unix.SockaddrNetlink); ok && sender.Pid == 0 {
			return c.in[:n], nil
		}
	}
}

// receive passes the kernel's answers to handle until handle returns true or an error.
func (c *conn) receive(handle func(answer) (done bool, err error)) error {
	for {
		b, err := c.read()
		if err != nil {
			return err
		}
		if b == nil {
			return errors.Errorf("no answer from the kernel within %d s", receiveTimeout)
		}
		for len(b) > 0 {
			var a answer
			if a, b, err = split(b); err != nil {
				return err
			}
			if done, err := handle(a); done || err != nil {
				return err
			}
		}
	}
}

// exchange sends the last n messages, which each ask for an acknowledgement, and calls answered with the index of each
// and the kernel's error.
func (c *conn) exchange(messages []byte, n int, answered func(i int, err error)) error {
	if n == 0 {
		return nil
	}
	first, left := c.seq-uint32(n)+1, n
	if err := c.send(messages); err != nil {
		return err
	}
	return c.receive(func(a answer) (bool, error) {
		if a.kind != unix.NLMSG_ERROR || a.seq-first > c.seq-first {
			return false, nil
		}
		answered(int(a.seq-first), a.code())
		left--
		return left == 0, nil
	})
}

// get calls handle with the attributes of the connection that attrs name. They are valid until handle returns.
func (c *conn) get(family uint8, attrs []byte, handle func(attrs []byte)) error {
	if err := c.send(c.message(nil, msgGet, unix.NLM_F_REQUEST, family, attrs)); err != nil {
		return err
	}
	return c.receive(func(a answer) (bool, error) {
		switch {
		case a.seq != c.seq:
			return false, nil
		case a.kind == unix.NLMSG_ERROR:
			return true, a.code()
		case len(a.body) < nfgenLen:
			return true, errMalformed
		}
		handle(a.body[nfgenLen:])
		return true, nil
	})
}

// list calls handle with the attributes of every connection of a family that passes the kernel's filter. The attributes
// are valid until handle returns.
func (c *conn) list(family uint8, filter []byte, handle func(attrs []byte) error) error {
	if err := c.send(c.message(nil, msgGet, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, family, filter)); err != nil {
		return err
	}
	interrupted := false
	err := c.receive(func(a answer) (bool, error) {
		switch {
		case a.seq != c.seq:
			return false, nil // of a listing that was given up
		case a.kind == unix.NLMSG_DONE:
			if len(a.body) == 0 {
				return true, nil
			}
			return true, a.code()
		case a.kind == unix.NLMSG_ERROR:
			return true, a.code()
		case len(a.body) < nfgenLen:
			return true, errMalformed
		}
		interrupted = interrupted || a.flags&unix.NLM_F_DUMP_INTR != 0
		return false, handle(a.body[nfgenLen:])
	})
	if err == nil && interrupted {
		return errInterrupted
	}
	return err
}

// attribute splits the first attribute off. It returns an empty rest after the last attribute or a malformed one.
func attribute(b []byte) (kind uint16, whole, value, rest []byte) {
	if len(b) < attrLen {
		return 0, nil, nil, nil
	}
	size := int(binary.NativeEndian.Uint16(b))
	if size < attrLen || size > len(b) {
		return 0, nil, nil, nil
	}
	return binary.NativeEndian.Uint16(b[2:]) & kindMask, b[:size], b[attrLen:size], b[min((size+3)&^3, len(b)):]
}

// appendNumber appends an attribute that is a number in the network's order.
func appendNumber(b []byte, kind uint16, value uint32) []byte {
	b = binary.NativeEndian.AppendUint16(b, attrLen+4)
	b = binary.NativeEndian.AppendUint16(b, kind)
	return binary.BigEndian.AppendUint32(b, value)
}

// number returns the value of an attribute that is a number in the network's order, or 0 if it is none.
func number(value []byte) uint32 {
	if len(value) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(value)
}

// appendPadded appends a whole attribute so that another may follow it.
func appendPadded(b, whole []byte) []byte {
	b = append(b, whole...)
	for range -len(whole) & 3 {
		b = append(b, 0)
	}
	return b
}
