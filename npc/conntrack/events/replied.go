package events

import (
	"encoding/binary"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// receiveTimeout bounds the wait for the kernel, in seconds.
const receiveTimeout = 10

// Replied lists the connections in the kernel's table that both ends have sent packets of. What comes and goes
// meanwhile may be missing. Zones other than the node's own are left out.
func Replied(each func(Connection)) error {
	s, err := open(0)
	if err != nil {
		return err
	}
	defer s.close()
	timeout := unix.Timeval{Sec: receiveTimeout}
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return errors.Wrap(err, "setting the timeout of a netlink socket")
	}
	const get = 1<<8 | 1 // of subsystem ctnetlink, IPCTNL_MSG_CT_GET
	request := make([]byte, headerLen+nfgenLen)
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], get)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	request[headerLen] = unix.AF_UNSPEC
	if err := unix.Sendto(s.fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return errors.Wrap(err, "asking for the table of connections")
	}
	for {
		b, err := s.next()
		if err != nil {
			return errors.Wrap(err, "listing connections")
		}
		if b == nil {
			return errors.Errorf("listing connections: no answer from the kernel within %d s", receiveTimeout)
		}
		if done, err := listed(b, each); done || err != nil {
			return errors.Wrap(err, "listing connections")
		}
	}
}

// listed passes on the connections of one part of a listing.
func listed(b []byte, each func(Connection)) (done bool, err error) {
	for len(b) >= headerLen {
		switch binary.NativeEndian.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(b) < headerLen+4 {
				return true, errors.New("the kernel sent a short message")
			}
			return true, unix.Errno(-int32(binary.NativeEndian.Uint32(b[headerLen:])))
		}
		var m message
		rest, ok := m.read(b)
		if ok && m.zone == 0 && m.status&statusSeenReply != 0 {
			each(m.connection)
		}
		if len(rest) >= len(b) {
			return true, errors.New("the kernel sent a message that is cut off")
		}
		b = rest
	}
	return false, nil
}
