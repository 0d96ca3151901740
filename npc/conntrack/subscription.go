package conntrack

import (
	"unsafe"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// subscription receives the kernel's events of connections, in the network namespace of the thread that opened it. One
// goroutine at a time may use it.
type subscription struct {
	conn  *conn
	rest  []byte // of the datagram that was read last
	drops uint32 // the kernel's count when it was last asked
}

// subscribe subscribes to a group of events, such as unix.NFNLGRP_CONNTRACK_NEW. The kernel queues size bytes of them.
func subscribe(group, size int) (*subscription, error) {
	c, err := dial(unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if err := c.join(group, size); err != nil {
		c.close()
		return nil, err
	}
	return &subscription{conn: c}, nil
}

// join joins a group after it has made the queue large.
func (c *conn) join(group, size int) error {
	if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) != nil {
		if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size); err != nil {
			return errors.Wrap(err, "enlarging the buffer of a netlink socket")
		}
	}
	// A socket that reports its first loss as an error loses everything else until it has been emptied.
	if err := unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1); err != nil {
		return errors.Wrap(err, "setting how a netlink socket loses messages")
	}
	err := unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group)
	return errors.Wrapf(err, "joining netlink group %d", group)
}

// next returns the entry of the next event, without Name and Master, or false if there is none now. An event that cannot
// be read is the error errMalformed, after which there may be others.
func (s *subscription) next() (e Entry, ok bool, err error) {
	if len(s.rest) == 0 {
		if s.rest, err = s.conn.read(); err != nil || s.rest == nil {
			return Entry{}, false, err
		}
	}
	var a answer
	if a, s.rest, err = split(s.rest); err != nil {
		return Entry{}, false, err
	}
	if len(a.body) > nfgenLen {
		e.read(a.body[nfgenLen:])
	}
	if !e.Source.IsValid() || !e.Destination.IsValid() {
		return Entry{}, false, errMalformed
	}
	return e, true, nil
}

// dropped returns how many datagrams the kernel dropped since the last call. Its count wraps at 2^32.
func (s *subscription) dropped() (uint64, error) {
	var info [unix.SK_MEMINFO_VARS]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.conn.fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, errors.Wrap(errno, "asking how many events of connections were lost")
	}
	since := info[unix.SK_MEMINFO_DROPS] - s.drops
	s.drops += since
	return uint64(since), nil
}
