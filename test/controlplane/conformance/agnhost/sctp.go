package main

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// errAborted is the answer of a host that does not serve the port.
var errAborted = errors.New("association aborted")

// Types of chunks (RFC 9260).
const (
	chunkInit    = 1
	chunkInitAck = 2
	chunkAbort   = 6
)

const (
	headerSize = 12 // ports, verification tag, checksum
	chunkSize  = 4  // type, flags, length
	initSize   = 16 // tag, window, streams out and in, sequence number
	packetSize = 2048
	// again is how long a client waits before it sends its INIT again.
	again = time.Second
)

// packet is an SCTP packet with one chunk.
type packet struct {
	source, destination uint16
	tag                 uint32 // the receiver's, 0 in an INIT
	chunk               byte
	ownTag              uint32 // the sender's, in INIT and INIT ACK
}

// bytes returns the packet as it is sent.
func (p packet) bytes() []byte {
	raw := make([]byte, headerSize+chunkSize, headerSize+chunkSize+initSize)
	binary.BigEndian.PutUint16(raw, p.source)
	binary.BigEndian.PutUint16(raw[2:], p.destination)
	binary.BigEndian.PutUint32(raw[4:], p.tag)
	raw[headerSize] = p.chunk
	if p.chunk != chunkAbort {
		raw = binary.BigEndian.AppendUint32(raw, p.ownTag)
		raw = binary.BigEndian.AppendUint32(raw, 1<<16) // window
		raw = binary.BigEndian.AppendUint16(raw, 1)     // streams
		raw = binary.BigEndian.AppendUint16(raw, 1)
		raw = binary.BigEndian.AppendUint32(raw, p.ownTag) // first sequence number
	}
	binary.BigEndian.PutUint16(raw[headerSize+2:], uint16(len(raw)-headerSize))
	binary.LittleEndian.PutUint32(raw[8:], crc32.Checksum(raw, crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// parse reads a packet with its first chunk.
func parse(raw []byte) (packet, bool) {
	if len(raw) < headerSize+chunkSize {
		return packet{}, false
	}
	p := packet{source: binary.BigEndian.Uint16(raw), destination: binary.BigEndian.Uint16(raw[2:]),
		tag: binary.BigEndian.Uint32(raw[4:]), chunk: raw[headerSize]}
	if len(raw) >= headerSize+chunkSize+initSize {
		p.ownTag = binary.BigEndian.Uint32(raw[headerSize+chunkSize:])
	}
	return p, true
}

// dial asks a port for an association, until it answers or the time is up, and aborts it at once.
func dial(host string, port uint16, timeout time.Duration) error {
	address, err := net.ResolveIPAddr("ip", host)
	if err != nil {
		return err
	}
	conn, err := net.DialIP("ip:132", nil, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	source := uint16(1024 + rand.IntN(64512))
	init := packet{source: source, destination: port, chunk: chunkInit, ownTag: rand.Uint32() | 1}
	end := time.Now().Add(timeout)
	for timeout == 0 || time.Now().Before(end) {
		if _, err := conn.Write(init.bytes()); err != nil {
			return err
		}
		wait := time.Now().Add(again)
		if timeout > 0 && end.Before(wait) {
			wait = end
		}
		if err := conn.SetReadDeadline(wait); err != nil {
			return err
		}
		answer, err := awaitAnswer(conn, init)
		if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() && (timeout == 0 || wait.Before(end)) {
			continue
		} else if err != nil {
			return err
		}
		if answer.chunk == chunkAbort {
			return errAborted
		}
		bye := packet{source: init.source, destination: port, tag: answer.ownTag, chunk: chunkAbort}
		_, err = conn.Write(bye.bytes())
		return err
	}
	return os.ErrDeadlineExceeded
}

// awaitAnswer reads until the answer to an INIT.
func awaitAnswer(conn *net.IPConn, init packet) (packet, error) {
	buffer := make([]byte, packetSize)
	for {
		n, _, err := conn.ReadFromIP(buffer) // Read would leave the header of IPv4
		if err != nil {
			return packet{}, err
		}
		p, whole := parse(buffer[:n])
		if whole && p.source == init.destination && p.destination == init.source && p.tag == init.ownTag &&
			(p.chunk == chunkInitAck || p.chunk == chunkAbort) {
			return p, nil
		}
	}
}

// reply returns the answer to an INIT for one of the ports. Others are not answered: each container of a pod has a
// server, and all of them see all packets.
func reply(raw []byte, ports map[uint16]bool) (packet, bool) {
	init, whole := parse(raw)
	if !whole || init.chunk != chunkInit || !ports[init.destination] {
		return packet{}, false
	}
	return packet{source: init.destination, destination: init.source, tag: init.ownTag, chunk: chunkInitAck,
		ownTag: rand.Uint32() | 1}, true
}

// serve answers INITs for ports over both families, from the address that they were sent to, until the context or a
// socket ends.
func serve(ctx context.Context, ports map[uint16]bool) error {
	v4, err := net.ListenPacket("ip4:132", "0.0.0.0")
	if err != nil {
		return errors.Wrap(err, "opening a raw socket")
	}
	defer context.AfterFunc(ctx, func() { v4.Close() })()
	v6, err := net.ListenPacket("ip6:132", "::")
	if err != nil {
		return errors.Wrap(err, "opening a raw socket")
	}
	defer context.AfterFunc(ctx, func() { v6.Close() })()
	ended := make(chan error, 2)
	go func() { ended <- serve4(ipv4.NewPacketConn(v4), ports) }()
	go func() { ended <- serve6(ipv6.NewPacketConn(v6), ports) }()
	return errors.Wrap(<-ended, "serving SCTP")
}

func serve4(conn *ipv4.PacketConn, ports map[uint16]bool) error {
	if err := conn.SetControlMessage(ipv4.FlagDst, true); err != nil {
		return err
	}
	buffer := make([]byte, packetSize)
	for {
		n, control, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return err
		}
		if answer, due := reply(buffer[:n], ports); due {
			// An answer that cannot be sent is one that the client misses.
			_, _ = conn.WriteTo(answer.bytes(), &ipv4.ControlMessage{Src: control.Dst}, from)
		}
	}
}

func serve6(conn *ipv6.PacketConn, ports map[uint16]bool) error {
	if err := conn.SetControlMessage(ipv6.FlagDst, true); err != nil {
		return err
	}
	buffer := make([]byte, packetSize)
	for {
		n, control, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return err
		}
		if answer, due := reply(buffer[:n], ports); due {
			_, _ = conn.WriteTo(answer.bytes(), &ipv6.ControlMessage{Src: control.Dst}, from)
		}
	}
}
