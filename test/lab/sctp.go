package lab

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"sync"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// Few kernels have SCTP sockets: this file speaks as much of the protocol (RFC 9260) as a first exchange needs, on raw
// sockets.

// errAborted is the answer of a host that does not serve the port.
var errAborted = errors.New("association aborted")

// Types of chunks.
const (
	sctpInit    = 1
	sctpInitAck = 2
	sctpAbort   = 6
)

const (
	sctpHeader = 12 // ports, verification tag, checksum
	sctpChunk  = 4  // type, flags, length
	sctpBody   = 16 // of INIT: tag, window, streams out and in, sequence number
)

// sctpPacket is one packet with one chunk.
type sctpPacket struct {
	source, destination uint16
	tag                 uint32 // verification tag: the receiver's, 0 in an INIT
	chunk               byte
	initiate            uint32 // the sender's tag, of INIT and INIT ACK
}

func (p sctpPacket) marshal() []byte {
	size := sctpHeader + sctpChunk
	if p.chunk == sctpInit || p.chunk == sctpInitAck {
		size += sctpBody
	}
	raw := make([]byte, size)
	binary.BigEndian.PutUint16(raw[0:], p.source)
	binary.BigEndian.PutUint16(raw[2:], p.destination)
	binary.BigEndian.PutUint32(raw[4:], p.tag)
	raw[12] = p.chunk
	binary.BigEndian.PutUint16(raw[14:], uint16(size-sctpHeader))
	if size > sctpHeader+sctpChunk {
		binary.BigEndian.PutUint32(raw[16:], p.initiate)
		binary.BigEndian.PutUint32(raw[20:], 65536)
		binary.BigEndian.PutUint16(raw[24:], 1)
		binary.BigEndian.PutUint16(raw[26:], 1)
		binary.BigEndian.PutUint32(raw[28:], p.initiate)
	}
	binary.LittleEndian.PutUint32(raw[8:], crc32.Checksum(raw, crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// parseSCTP reads the first chunk of a packet.
func parseSCTP(raw []byte) (sctpPacket, bool) {
	if len(raw) < sctpHeader+sctpChunk {
		return sctpPacket{}, false
	}
	p := sctpPacket{
		source:      binary.BigEndian.Uint16(raw[0:]),
		destination: binary.BigEndian.Uint16(raw[2:]),
		tag:         binary.BigEndian.Uint32(raw[4:]),
		chunk:       raw[12],
	}
	if len(raw) >= sctpHeader+sctpChunk+sctpBody {
		p.initiate = binary.BigEndian.Uint32(raw[16:])
	}
	return p, true
}

// askSCTP sends an INIT and waits for what belongs to it.
func askSCTP(socket *os.File, packet Packet) (string, error) {
	init := sctpPacket{source: packet.FromPort, destination: packet.Port, chunk: sctpInit, initiate: rand.Uint32() | 1}
	if init.source == 0 {
		init.source = uint16(1024 + rand.IntN(64512))
	}
	if _, err := socket.Write(init.marshal()); err != nil {
		return "", err
	}
	buffer := make([]byte, 2048)
	for {
		n, err := readInTime(socket, buffer)
		if err != nil {
			return "", err
		}
		answer, ok := parseSCTP(withoutHeader(buffer[:n], packet.To.Is4()))
		if !ok || answer.source != init.destination || answer.destination != init.source ||
			answer.tag != init.initiate {
			continue
		}
		switch answer.chunk {
		case sctpInitAck:
			return "", nil
		case sctpAbort:
			return "", errAborted
		}
	}
}

// withoutHeader strips the IP header, which raw IPv4 sockets hand over and IPv6 ones do not.
func withoutHeader(raw []byte, ipv4 bool) []byte {
	if !ipv4 || len(raw) == 0 {
		return raw
	}
	return raw[min(len(raw), int(raw[0]&0x0f)*4):]
}

// sctpServer answers for all ports of a host.
type sctpServer struct {
	mu    sync.Mutex      // guards the fields below
	ports map[uint16]bool // port -> served
}

func (s *sctpServer) serves(port uint16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ports[port]
}

func (h *Host) serveSCTP(port uint16) error {
	h.mu.Lock()
	server := h.sctp
	first := server == nil
	if first {
		server = &sctpServer{ports: map[uint16]bool{}}
		h.sctp = server
	}
	h.mu.Unlock()
	server.mu.Lock()
	server.ports[port] = true
	server.mu.Unlock()
	if !first {
		return nil
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		var fd int
		if err := h.inside(func() (err error) {
			fd, err = openSCTPServer(family)
			return err
		}); err != nil {
			return err
		}
		socket := os.NewFile(uintptr(fd), "sctp")
		h.keep(socket)
		go server.answer(socket, family == unix.AF_INET)
	}
	return nil
}

// openSCTPServer opens a raw socket that reports which of the host's addresses a packet was sent to.
func openSCTPServer(family int) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return 0, errors.Wrap(err, "opening a raw socket")
	}
	if family == unix.AF_INET {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	} else {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	}
	if err != nil {
		unix.Close(fd)
		return 0, errors.Wrap(err, "asking for destination addresses")
	}
	return fd, nil
}

// answer answers INITs until the socket is closed.
func (s *sctpServer) answer(socket *os.File, ipv4 bool) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	buffer, control := make([]byte, 2048), make([]byte, 256)
	for {
		var n, c int
		var from unix.Sockaddr
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, c, _, from, failed = unix.Recvmsg(int(fd), buffer, control, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		if err != nil {
			return // closed with the host
		}
		if failed != nil {
			continue // an ICMP error about an earlier answer
		}
		init, ok := parseSCTP(withoutHeader(buffer[:n], ipv4))
		if !ok || init.chunk != sctpInit {
			continue
		}
		answer := s.reply(init)
		// An answer that cannot be sent is one that the client misses.
		_ = raw.Control(func(fd uintptr) {
			_, _ = unix.SendmsgN(int(fd), answer.marshal(), fromSameAddress(control[:c]), withoutPort(from), 0)
		})
	}
}

func (s *sctpServer) reply(init sctpPacket) sctpPacket {
	answer := sctpPacket{source: init.destination, destination: init.source, tag: init.initiate, chunk: sctpAbort}
	if s.serves(init.destination) {
		answer.chunk, answer.initiate = sctpInitAck, rand.Uint32()|1
	}
	return answer
}

// withoutPort clears the port. Raw IPv6 sockets report the protocol in it and do not accept it back.
func withoutPort(address unix.Sockaddr) unix.Sockaddr {
	if v6, ok := address.(*unix.SockaddrInet6); ok {
		v6.Port = 0
	}
	return address
}
