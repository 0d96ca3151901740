package lab

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// SendIP sends an IP packet, header and all, through the host's routing; its source may be anybody's. In an IPv4 header
// the kernel fills in the checksum, the total length, and a source or an identification that is 0.
func (h *Host) SendIP(packet []byte) error {
	to, err := destination(packet)
	if err != nil {
		return err
	}
	err = h.inside(func() error {
		family := unix.AF_INET
		if to.Is6() {
			family = unix.AF_INET6
		}
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return errors.Wrap(err, "opening a raw socket")
		}
		defer unix.Close(fd)
		if to.IsLinkLocalUnicast() && to.Is6() {
			to = to.WithZone(podInterface)
		}
		address, err := socketAddress(to, 0)
		if err != nil {
			return err
		}
		return unix.Sendto(fd, packet, 0, address)
	})
	return errors.Wrapf(err, "sending a raw packet to %s from host %s", to, h.name)
}

// destination reads the destination of an IP packet.
func destination(packet []byte) (netip.Addr, error) {
	switch {
	case len(packet) >= 20 && packet[0]>>4 == 4:
		return netip.AddrFrom4([4]byte(packet[16:20])), nil
	case len(packet) >= 40 && packet[0]>>4 == 6:
		return netip.AddrFrom16([16]byte(packet[24:40])), nil
	}
	return netip.Addr{}, errors.New("this is no IP packet")
}

// SendFrame sends an Ethernet frame, header and all, out of one of the host's interfaces.
func (h *Host) SendFrame(interfaceName string, frame []byte) error {
	err := h.inside(func() error {
		fd, err := openPacketSocket(interfaceName, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_, err = unix.Write(fd, frame)
		return err
	})
	return errors.Wrapf(err, "sending a frame out of %s of host %s", interfaceName, h.name)
}

// openPacketSocket opens a non-blocking socket for frames of a protocol (0: none are received) on an interface.
func openPacketSocket(interfaceName string, proto uint16) (int, error) {
	link, err := net.InterfaceByName(interfaceName)
	if err != nil {
		return 0, errors.Wrapf(err, "finding interface %s", interfaceName)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, errors.Wrap(err, "opening a packet socket")
	}
	var network [2]byte
	binary.BigEndian.PutUint16(network[:], proto)
	err = unix.Bind(fd, &unix.SockaddrLinklayer{
		Protocol: binary.NativeEndian.Uint16(network[:]),
		Ifindex:  link.Index,
	})
	if err != nil {
		unix.Close(fd)
		return 0, errors.Wrapf(err, "binding to interface %s", interfaceName)
	}
	return fd, nil
}

// Frame is an Ethernet frame that an interface has sent or received. A VLAN tag that the kernel took out is not in it.
type Frame struct {
	Outgoing bool
	Data     []byte
}

// IP returns the IP packet in the frame, or nil.
func (f Frame) IP() []byte {
	const header, ipv4, ipv6 = 14, 0x0800, 0x86dd
	if len(f.Data) < header {
		return nil
	}
	if kind := binary.BigEndian.Uint16(f.Data[12:]); kind != ipv4 && kind != ipv6 {
		return nil
	}
	return f.Data[header:]
}

// Capture collects the frames of an interface from the moment it is made.
type Capture struct {
	socket *os.File
	host   *Host

	mu     sync.Mutex // guards the fields below
	frames []Frame
	more   chan struct{} // closed and replaced with every frame
}

// Capture starts collecting what an interface of the host sends and receives, until Close or the host's end.
func (h *Host) Capture(interfaceName string) (*Capture, error) {
	var fd int
	err := h.inside(func() (err error) {
		fd, err = openPacketSocket(interfaceName, unix.ETH_P_ALL)
		return err
	})
	if err != nil {
		return nil, errors.Wrapf(err, "capturing on %s of host %s", interfaceName, h.name)
	}
	c := &Capture{socket: os.NewFile(uintptr(fd), "capture"), host: h, more: make(chan struct{})}
	h.keep(c.socket)
	go c.collect()
	return c, nil
}

func (c *Capture) collect() {
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return
	}
	buffer := make([]byte, 65536)
	for {
		var n int
		var from unix.Sockaddr
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, from, failed = unix.Recvfrom(int(fd), buffer, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		if err != nil {
			return // closed
		}
		if failed != nil {
			continue // the interface went down
		}
		link, _ := from.(*unix.SockaddrLinklayer)
		frame := Frame{Data: append([]byte(nil), buffer[:n]...)}
		frame.Outgoing = link != nil && link.Pkttype == unix.PACKET_OUTGOING
		c.mu.Lock()
		c.frames = append(c.frames, frame)
		close(c.more)
		c.more = make(chan struct{})
		c.mu.Unlock()
	}
}

// Frames returns what was collected so far.
func (c *Capture) Frames() []Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Frame(nil), c.frames...)
}

// Await returns the first frame, collected already or yet to come, that matches; the context ends the wait.
func (c *Capture) Await(ctx context.Context, match func(Frame) bool) (Frame, error) {
	for seen := 0; ; {
		c.mu.Lock()
		frames, more := c.frames, c.more
		c.mu.Unlock()
		for ; seen < len(frames); seen++ {
			if match(frames[seen]) {
				return frames[seen], nil
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return Frame{}, errors.Wrapf(ctx.Err(), "no such frame among %d on host %s", seen, c.host.name)
		}
	}
}

// Close ends the capture; what was collected stays.
func (c *Capture) Close() { c.host.forget(c.socket) }
