package events

import (
	"unsafe"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// largestMessage is large enough for a part of a listing, which has at most 32 KiB.
const largestMessage = 64 << 10

// socket is a netlink socket with a subscription.
type socket struct {
	fd    int
	in    []byte
	drops uint32 // the kernel's count when it was last asked
}

// open opens a socket without a subscription.
func open(flags int) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|flags, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, errors.Wrap(err, "opening a netlink socket")
	}
	return &socket{fd: fd, in: make([]byte, largestMessage)}, nil
}

// subscribe opens a socket for a group of events.
func subscribe(group int) (*socket, error) {
	s, err := open(unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if err := s.prepare(group); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// prepare makes the queue large before anything comes.
func (s *socket) prepare(group int) error {
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferSize) != nil {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bufferSize); err != nil {
			return errors.Wrap(err, "enlarging the buffer of a netlink socket")
		}
	}
	// A socket that reports its first loss as an error loses everything else until it has been emptied.
	if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1); err != nil {
		return errors.Wrap(err, "setting how a netlink socket loses messages")
	}
	if err := unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return errors.Wrap(err, "binding a netlink socket")
	}
	err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group)
	return errors.Wrapf(err, "joining netlink group %d", group)
}

func (s *socket) close() { _ = unix.Close(s.fd) }

// next returns the next datagram of the kernel, valid until the next call, or nil if there is none, on a socket that
// waits: in time.
func (s *socket) next() ([]byte, error) {
	for {
		n, from, err := unix.Recvfrom(s.fd, s.in, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil, nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOBUFS): // the drop count tells
			continue
		case err != nil:
			return nil, errors.Wrap(err, "receiving from the kernel")
		}
		if sender, ok := from.(*unix.SockaddrNetlink); ok && sender.Pid == 0 {
			return s.in[:n], nil
		}
	}
}

// dropped returns how many datagrams the kernel dropped since the last call. Its count begins anew after 2^32.
func (s *socket) dropped() (uint64, error) {
	var info [unix.SK_MEMINFO_VARS]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)),
		uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, errors.Wrap(errno, "asking how many events of connections were lost")
	}
	since := info[unix.SK_MEMINFO_DROPS] - s.drops
	s.drops += since
	return uint64(since), nil
}
