package ipset

import (
	"github.com/pkg/errors"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// receiveTimeout bounds the wait for the kernel, in seconds. The kernel answers before send returns.
	receiveTimeout = 10

	// receiveBuffer is large enough for the answers to everything that is sent at once.
	receiveBuffer = 4 << 20

	// largestMessage is large enough for the largest answer: an error that echoes a request, whose one attribute is
	// below 64 KiB. A part of a listing has at most 32 KiB.
	largestMessage = 128 << 10
)

// Conn is a netlink socket in the network namespace of the thread that opened it. One goroutine at a time may use it.
type Conn struct {
	fd     int
	seq    uint32 // of the last request
	budget int    // bytes of answers that the receive buffer can take
	slots  bool   // whether the kernel reports the slots of sets
	out    encoder
	in     []byte
}

// Open opens a socket and asks the kernel for its version of the ipset protocol. It fails if the kernel does not
// support sets, and with unix.EPERM without CAP_NET_ADMIN.
func Open() (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, errors.Wrap(ErrUnsupported, "opening a netfilter netlink socket")
	}
	if err != nil {
		return nil, errors.Wrap(err, "opening a netfilter netlink socket")
	}
	c := &Conn{fd: fd, in: make([]byte, largestMessage)}
	if err := c.setUp(); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return c, nil
}

func (c *Conn) setUp() error {
	if err := unix.Bind(c.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return errors.Wrap(err, "binding a netlink socket")
	}
	timeout := unix.Timeval{Sec: receiveTimeout}
	if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return errors.Wrap(err, "setting the timeout of a netlink socket")
	}
	// Otherwise an error that names an element's line looks like any other error that echoes the request.
	if err := unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return errors.Wrap(err, "asking for short acknowledgements")
	}
	for _, size := range []struct{ forced, allowed int }{
		{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF},
		{unix.SO_SNDBUFFORCE, unix.SO_SNDBUF},
	} {
		if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, size.forced, receiveBuffer) == nil {
			continue
		}
		if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, size.allowed, receiveBuffer); err != nil {
			return errors.Wrap(err, "setting the buffers of a netlink socket")
		}
	}
	size, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return errors.Wrap(err, "reading the receive buffer's size")
	}
	c.budget = size / 2
	return c.checkProtocol()
}

// checkProtocol returns an error unless the kernel supports version 6 of the protocol, as it does since 2.6.39.
func (c *Conn) checkProtocol() error {
	c.out.buf = c.out.buf[:0]
	c.seq++
	c.out.end(c.out.message(nl.IPSET_CMD_PROTOCOL, 0, c.seq))
	if err := c.send(); err != nil {
		return errors.Wrap(err, "asking for the ipset protocol")
	}
	var lowest, highest uint8
	err := c.receive(c.seq, 1, func(p packet) (bool, error) {
		if p.kind == unix.NLMSG_ERROR {
			return true, protocolError(p)
		}
		if len(p.body) < nfgenLen {
			return true, errShort
		}
		a := attrs{rest: p.body[nfgenLen:]}
		for a.next() {
			switch a.kind {
			case nl.IPSET_ATTR_PROTOCOL:
				highest = a.u8()
			case nl.IPSET_ATTR_PROTOCOL_MIN:
				lowest = a.u8()
			}
		}
		return true, a.err
	})
	if err != nil {
		return errors.Wrap(err, "asking for the ipset protocol")
	}
	if highest < nl.IPSET_PROTOCOL || lowest > nl.IPSET_PROTOCOL {
		return errors.Wrapf(ErrUnsupported, "ipset protocol %d: the kernel speaks %d to %d",
			nl.IPSET_PROTOCOL, lowest, highest)
	}
	c.slots = highest == slotProtocol
	return nil
}

func protocolError(p packet) error {
	code, err := p.code()
	switch {
	case err != nil:
		return err
	case unix.Errno(code) == unix.EINVAL:
		return errors.Wrap(ErrUnsupported, "the kernel has no ip_set")
	case unix.Errno(code) == unix.EPERM:
		return errors.Wrap(unix.EPERM, "CAP_NET_ADMIN is needed")
	}
	return KernelError{Code: code}
}

// Close closes the socket.
func (c *Conn) Close() error {
	return errors.Wrap(unix.Close(c.fd), "closing a netlink socket")
}

// send sends the encoded messages. The kernel has processed all of them when send returns.
func (c *Conn) send() error {
	for {
		err := unix.Sendto(c.fd, c.out.buf, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if !errors.Is(err, unix.EINTR) {
			return errors.Wrapf(err, "sending %d bytes to the kernel", len(c.out.buf))
		}
	}
}

// receive passes the answers to count requests, starting with sequence number first, to handle until handle returns
// true or an error. It ignores answers to earlier requests, which were given up.
func (c *Conn) receive(first uint32, count int, handle func(packet) (bool, error)) error {
	for {
		buf, err := c.read(0)
		if err != nil {
			return err
		}
		for len(buf) > 0 {
			var p packet
			p, buf, err = nextPacket(buf)
			if err != nil {
				return err
			}
			if p.seq-first >= uint32(count) {
				continue
			}
			done, err := handle(p)
			if done || err != nil {
				return err
			}
		}
	}
}

// errTruncated is the error of an answer that is larger than largestMessage.
const errTruncated ErrorKind = "answer from the kernel is truncated"

// read receives once, into the connection's buffer.
func (c *Conn) read(flags int) ([]byte, error) {
	for {
		n, from, err := unix.Recvfrom(c.fd, c.in, flags|unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err == unix.EAGAIN && flags&unix.MSG_DONTWAIT == 0:
			return nil, errors.Errorf("no answer from the kernel within %d s", receiveTimeout)
		case err != nil:
			return nil, errors.Wrap(err, "receiving from the kernel")
		case n > len(c.in):
			return nil, errors.Wrapf(errTruncated, "%d bytes do not fit into %d", n, len(c.in))
		}
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
			continue
		}
		return c.in[:n], nil
	}
}

// drain discards the rest of a listing that was given up.
func (c *Conn) drain() {
	for {
		_, err := c.read(unix.MSG_DONTWAIT)
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, errTruncated) {
			return
		}
	}
}
