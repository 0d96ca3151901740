package lab

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/await"
)

// Verdict is what became of a probe.
type Verdict int

const (
	// Dropped means that no answer came in time.
	Dropped Verdict = iota
	// Allowed means that the packet arrived and its answer came back.
	Allowed
	// Refused means that the packet arrived at a host without a server of the port or the protocol.
	Refused
	// Unreachable means that a router or a rule on the way rejected the packet.
	Unreachable
)

// String returns the verdict in a word.
func (v Verdict) String() string {
	switch v {
	case Allowed:
		return "allowed"
	case Refused:
		return "refused"
	case Unreachable:
		return "unreachable"
	default:
		return "dropped"
	}
}

// Reached reports whether the packet arrived.
func (v Verdict) Reached() bool { return v == Allowed || v == Refused }

// DefaultTimeout is how long a probe waits for its answer.
var DefaultTimeout = await.Scaled(250 * time.Millisecond)

// Packet describes what a probe sends.
type Packet struct {
	// Proto is tcp (a handshake), udp (a datagram and its answer), icmp (echo, of either family) or sctp (an INIT and
	// its answer).
	Proto string
	// To is the destination; a link-local address has the sender's interface as its zone.
	To   netip.Addr
	Port uint16
	// From is one of the sender's addresses; the zero Addr leaves the choice to the kernel.
	From netip.Addr
	// FromPort is the source port; 0 lets the kernel choose one, so that every probe is a new flow.
	FromPort uint16
	// Size is the number of bytes sent with udp and icmp; what is larger than the MTU (1500) goes in fragments.
	Size int
	// Timeout is how long to wait for the answer; 0 means DefaultTimeout.
	Timeout time.Duration
}

// Probe sends a packet from the host and returns what became of it. An error is one of the lab, or the context's end.
func (h *Host) Probe(ctx context.Context, packet Packet) (Verdict, error) {
	verdict, _, err := h.Ask(ctx, packet)
	return verdict, err
}

// Ask is Probe with the name of the host that answered, which only tcp and udp servers send.
func (h *Host) Ask(ctx context.Context, packet Packet) (Verdict, string, error) {
	if packet.Timeout == 0 {
		packet.Timeout = DefaultTimeout
	}
	exchange := map[string]func(*os.File, Packet) (string, error){
		"tcp": askTCP, "udp": askUDP, "icmp": askICMP, "sctp": askSCTP,
	}[packet.Proto]
	if exchange == nil {
		return Dropped, "", errors.Errorf("no probe speaks %q", packet.Proto)
	}
	var name string
	socket, err := h.connect(packet)
	if err == nil {
		name, err = converse(ctx, socket, packet, exchange)
	}
	verdict, err := model(err)
	if ctx.Err() != nil {
		return Dropped, "", ctx.Err()
	}
	return verdict, name, errors.Wrapf(err, "probing %s %s port %d from host %s", packet.Proto, packet.To, packet.Port,
		h.name)
}

// converse runs an exchange on a connected socket until its timeout or the context's end.
func converse(ctx context.Context, socket *os.File, packet Packet,
	exchange func(*os.File, Packet) (string, error)) (string, error) {
	defer socket.Close()
	if err := socket.SetDeadline(time.Now().Add(packet.Timeout)); err != nil {
		return "", errors.Wrap(err, "setting a deadline")
	}
	defer context.AfterFunc(ctx, func() { _ = socket.SetDeadline(time.Unix(1, 0)) })()
	return exchange(socket, packet)
}

// model turns what an exchange ended with into a verdict.
func model(err error) (Verdict, error) {
	switch {
	case err == nil:
		return Allowed, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Dropped, nil
	case isAny(err, unix.ECONNREFUSED, unix.ENOPROTOOPT, errAborted):
		return Refused, nil
	// EPERM is a verdict of the sender's own OUTPUT chain.
	case isAny(err, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EACCES, unix.EPERM, unix.EHOSTDOWN):
		return Unreachable, nil
	default:
		return Dropped, err
	}
}

func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// connect makes a socket for a packet in the host's namespace and connects it, without waiting for a handshake.
func (h *Host) connect(packet Packet) (*os.File, error) {
	var fd int
	err := h.inside(func() (err error) {
		fd, err = openSocket(packet)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), packet.Proto), nil
}

func openSocket(packet Packet) (int, error) {
	family, kind, proto := unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP
	if packet.To.Is6() {
		family = unix.AF_INET6
	}
	switch packet.Proto {
	case "tcp":
		kind, proto = unix.SOCK_STREAM, unix.IPPROTO_TCP
	case "icmp":
		proto = unix.IPPROTO_ICMP
		if packet.To.Is6() {
			proto = unix.IPPROTO_ICMPV6
		}
	case "sctp":
		kind, proto = unix.SOCK_RAW, unix.IPPROTO_SCTP
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return 0, errors.Wrapf(err, "opening a socket for %s", packet.Proto)
	}
	if err := connectSocket(fd, packet); err != nil {
		unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

func connectSocket(fd int, packet Packet) error {
	port, fromPort := packet.Port, packet.FromPort
	if packet.Proto == "icmp" || packet.Proto == "sctp" {
		port, fromPort = 0, 0 // the socket has none
	}
	if packet.From.IsValid() || fromPort != 0 {
		from := packet.From
		if !from.IsValid() {
			from = netip.IPv4Unspecified()
			if packet.To.Is6() {
				from = netip.IPv6Unspecified()
			}
		}
		address, err := socketAddress(from, fromPort)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return errors.Wrap(err, "sharing a source port")
		}
		if err := unix.Bind(fd, address); err != nil {
			return errors.Wrapf(err, "sending from %s port %d", from, fromPort)
		}
	}
	address, err := socketAddress(packet.To, port)
	if err != nil {
		return err
	}
	err = unix.Connect(fd, address)
	if errors.Is(err, unix.EINPROGRESS) {
		return nil
	}
	return errors.Wrapf(err, "connecting to %s", packet.To)
}

// socketAddress returns the kernel's form of an address; a zone is looked up in the calling thread's namespace.
func socketAddress(addr netip.Addr, port uint16) (unix.Sockaddr, error) {
	if addr.Is4() {
		return &unix.SockaddrInet4{Addr: addr.As4(), Port: int(port)}, nil
	}
	if !addr.Is6() {
		return nil, errors.New("a packet needs a destination address")
	}
	address := &unix.SockaddrInet6{Addr: addr.As16(), Port: int(port)}
	if addr.Zone() != "" {
		link, err := net.InterfaceByName(addr.Zone())
		if err != nil {
			return nil, errors.Wrapf(err, "finding the interface of %s", addr)
		}
		address.ZoneId = uint32(link.Index)
	}
	return address, nil
}

// askTCP waits for the handshake, and a moment for the server's name. It ends with a reset, which leaves nothing
// behind.
func askTCP(socket *os.File, _ Packet) (string, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return "", errors.Wrap(err, "waiting for a handshake")
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		failed = handshake(int(fd))
		return !errors.Is(failed, unix.EINPROGRESS)
	})
	if err != nil {
		return "", err
	}
	if failed != nil {
		return "", failed
	}
	if err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}); err != nil {
		return "", err
	}
	if failed != nil {
		return "", errors.Wrap(failed, "asking for a reset at the end")
	}
	answer := make([]byte, 256)
	n, _ := socket.Read(answer) // the handshake is the verdict, whatever follows
	name, _, _ := bytes.Cut(answer[:n], []byte("\n"))
	return string(name), nil
}

// handshake returns EINPROGRESS as long as the socket is not connected.
func handshake(fd int) error {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return errors.Wrap(err, "asking for a handshake's result")
	}
	if code != 0 {
		return unix.Errno(code)
	}
	_, err = unix.Getpeername(fd)
	if errors.Is(err, unix.ENOTCONN) {
		return unix.EINPROGRESS
	}
	return errors.Wrap(err, "asking for a handshake's result")
}

func askUDP(socket *os.File, packet Packet) (string, error) {
	if _, err := socket.Write(make([]byte, max(packet.Size, 1))); err != nil {
		return "", err
	}
	answer := make([]byte, 256)
	n, err := readInTime(socket, answer)
	return string(answer[:n]), err
}

// readInTime reads what has come by the deadline. When that is over it looks once more: in a process that has much to
// do the clock is heard before the packet that came first.
func readInTime(socket *os.File, buffer []byte) (int, error) {
	n, err := socket.Read(buffer)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	raw, failed := socket.SyscallConn()
	if failed != nil {
		return 0, failed
	}
	var last error
	if failed := raw.Control(func(fd uintptr) { n, last = unix.Read(int(fd), buffer) }); failed != nil {
		return 0, failed
	}
	if errors.Is(last, unix.EAGAIN) {
		return 0, err
	}
	return max(n, 0), last
}

// askICMP uses a ping socket: the kernel fills in the identifier and the checksum and hands over matching replies only.
func askICMP(socket *os.File, packet Packet) (string, error) {
	const echoRequest, echoRequest6, header = 8, 128, 8
	request := make([]byte, header+packet.Size)
	request[0] = echoRequest
	if packet.To.Is6() {
		request[0] = echoRequest6
	}
	binary.BigEndian.PutUint16(request[6:], uint16(rand.Uint32()))
	if _, err := socket.Write(request); err != nil {
		return "", err
	}
	_, err := readInTime(socket, make([]byte, header))
	return "", err
}
