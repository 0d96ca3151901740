// Package nfqueue reads the packets that rules with the target NFQUEUE queue or that rules with the target NFLOG copy,
// and gives those of a queue their verdicts.
//
//	q, err := nfqueue.Open(number, false)
//	err = q.Receive(func(id uint32, packet []byte) { ... })
//	err = q.Decide([]nfqueue.Decision{{ID: id}})
package nfqueue

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

const (
	// atOnce is how many packets are read before they get their verdicts.
	atOnce = 64
	// queueLength is how many packets may wait; the kernel drops more.
	queueLength = 4096
	// copyLength is how much of a packet is read: the kernel's limit is a few bytes below.
	copyLength = 1<<16 - 1
	// receiveBuffer takes the packets that wait, at the size that most of them have.
	receiveBuffer = 16 << 20
	// largestDatagram is larger than a packet and its attributes.
	largestDatagram = 128 << 10

	headerLen = unix.SizeofNlMsghdr
	nfgenLen  = 4
	attrLen   = unix.SizeofNlAttr
	attrMask  = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
)

// Messages and attributes of nfnetlink_queue.h.
const (
	msgPacket       = unix.NFNL_SUBSYS_QUEUE << 8
	msgVerdict      = msgPacket | 1
	msgConfig       = msgPacket | 2
	msgVerdictBatch = msgPacket | 3
	attrHeader      = 1
	attrVerdict     = 2
	attrPayload     = 10
	attrWholeLength = 13
	configCommand   = 1
	configParams    = 2
	configLength    = 3
	commandBind     = 1
	copyPacket      = 2
	// Those of nfnetlink_log.h, where they differ.
	msgCopy         = unix.NFNL_SUBSYS_ULOG << 8
	attrCopy        = 9
	configThreshold = 5
	netfilterDrop   = 0
	netfilterAccept = 1
)

// Queue is a queue of packets that rules with the target NFQUEUE send here, or a group of those that rules with the
// target NFLOG copy, in the network namespace of the thread that opened it. One goroutine at a time may use it, Wake
// excepted.
type Queue struct {
	number uint16
	copies bool // it is a group
	socket *os.File
	// Conn is its socket.
	Conn syscall.RawConn
	seq  uint32
	in   []byte
	// undecided is how many packets wait for Decide.
	undecided int
	// Bound is set once the kernel has given the queue, and Refused is why it is not; nil while the kernel has not answered.
	Bound   bool
	Refused error
	// counts is what the kernel counts of its queues; nil if it shows none, and for a group.
	counts *os.File
	port   uint32 // the socket's number there
	// lost counts the reports that the socket's buffer overflowed, each by one packet or more.
	lost uint64
}

// Open opens a queue, or a group of copies, and asks for it.
func Open(number uint16, copies bool) (*Queue, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, errors.Wrap(err, "opening a netlink socket")
	}
	q := &Queue{number: number, copies: copies, socket: os.NewFile(uintptr(fd), "nfqueue"), in: make([]byte, largestDatagram)}
	if err := q.setUp(fd); err != nil {
		q.Close()
		return nil, err
	}
	return q, nil
}

func (q *Queue) setUp(fd int) (err error) {
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return errors.Wrap(err, "binding a netlink socket")
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer); err != nil {
			return errors.Wrap(err, "enlarging the buffer of a netlink socket")
		}
	}
	// A socket that reports its first loss as an error loses everything else until it has been emptied.
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1); err != nil {
		return errors.Wrap(err, "setting how a netlink socket loses messages")
	}
	if address, err := unix.Getsockname(fd); err == nil {
		q.port = address.(*unix.SockaddrNetlink).Pid
	}
	if q.Conn, err = q.socket.SyscallConn(); err != nil {
		return errors.Wrap(err, "preparing a netlink socket")
	}
	if err := q.Bind(); err != nil {
		return err
	}
	if !q.copies { // the first message loads the module that has the file
		q.counts, _ = os.Open("/proc/thread-self/net/netfilter/nfnetlink_queue")
	}
	return nil
}

// Close closes the queue.
func (q *Queue) Close() {
	_ = q.socket.Close()
	if q.counts != nil {
		_ = q.counts.Close()
	}
}

// Bind asks the kernel for the queue. The answer comes with Receive or Drain.
func (q *Queue) Bind() error {
	q.seq++
	b := q.configuration()
	err := q.send(finish(b, 0))
	if err == nil {
		q.Refused = nil
	}
	return errors.Wrapf(err, "asking for %s", q)
}

func (q *Queue) configuration() []byte {
	if q.copies {
		b := q.message(nil, msgCopy|1, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
		b = appendAttr(b, configCommand, []byte{commandBind})
		b = appendAttr(b, configParams, append(binary.BigEndian.AppendUint32(nil, copyLength), copyPacket, 0))
		return appendAttr(b, configThreshold, binary.BigEndian.AppendUint32(nil, 1)) // each at once
	}
	b := q.message(nil, msgConfig, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	b = appendAttr(b, configCommand, []byte{commandBind, 0, 0, unix.AF_UNSPEC})
	b = appendAttr(b, configParams, append(binary.BigEndian.AppendUint32(nil, copyLength), copyPacket))
	return appendAttr(b, configLength, binary.BigEndian.AppendUint32(nil, queueLength))
}

func (q *Queue) module() string {
	if q.copies {
		return "log"
	}
	return "queue"
}

// String names the queue in texts.
func (q *Queue) String() string {
	if q.copies {
		return fmt.Sprintf("NFLOG group %d", q.number)
	}
	return fmt.Sprintf("queue %d", q.number)
}

// message appends the beginning of a message.
func (q *Queue) message(b []byte, kind, flags uint16) []byte {
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = binary.NativeEndian.AppendUint32(b, q.seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	return binary.BigEndian.AppendUint16(append(b, unix.AF_UNSPEC, unix.NFNETLINK_V0), q.number)
}

// finish fills in the length of the message that begins at an offset.
func finish(b []byte, start int) []byte {
	binary.NativeEndian.PutUint32(b[start:], uint32(len(b)-start))
	return b
}

func appendAttr(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrLen+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for range -len(value) & 3 {
		b = append(b, 0)
	}
	return b
}

func (q *Queue) send(b []byte) (err error) {
	failed := q.Conn.Write(func(fd uintptr) bool {
		err = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN)
	})
	if failed != nil {
		return failed
	}
	return err
}

// Until sets when Receive returns if nothing comes.
func (q *Queue) Until(t time.Time) { _ = q.socket.SetReadDeadline(t) }

// Wake makes Receive return. Any goroutine may call it.
func (q *Queue) Wake() { q.Until(time.Unix(1, 0)) }

// Receive waits for packets, and calls handle with each, at most atOnce, until there are no more. A packet that the
// kernel cut short is nil. What handle gets is valid until it returns.
func (q *Queue) Receive(handle func(id uint32, packet []byte)) error {
	var err error
	waited := q.Conn.Read(func(fd uintptr) (any bool) {
		any, err = q.some(int(fd), handle)
		return any || err != nil
	})
	if err == nil && waited != nil && !errors.Is(waited, os.ErrDeadlineExceeded) {
		err = waited
	}
	return errors.Wrap(err, "receiving from the kernel")
}

// Drain does the same without waiting, for all packets that wait.
func (q *Queue) Drain(handle func(id uint32, packet []byte)) (err error) {
	failed := q.Conn.Control(func(fd uintptr) {
		for more := true; more && err == nil; {
			more, err = q.some(int(fd), handle)
		}
	})
	return errors.Wrap(cmp.Or(err, failed), "receiving from the kernel")
}

// some reads some packets, and reports whether there were any.
func (q *Queue) some(fd int, handle func(id uint32, packet []byte)) (any bool, err error) {
	for n := range atOnce {
		size, from, err := unix.Recvfrom(fd, q.in, unix.MSG_TRUNC)
		switch sender, ok := from.(*unix.SockaddrNetlink); {
		case errors.Is(err, unix.EAGAIN):
			return n > 0, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS):
			q.lost++
			continue
		case err != nil:
			return false, err
		case ok && sender.Pid == 0 && size <= len(q.in):
			q.dispatch(q.in[:size], handle)
		}
	}
	return true, nil
}

// dispatch reads the messages of a datagram.
func (q *Queue) dispatch(b []byte, handle func(id uint32, packet []byte)) {
	for len(b) >= headerLen {
		size := int(binary.NativeEndian.Uint32(b))
		if size < headerLen || size > len(b) {
			return
		}
		body := b[headerLen:size]
		switch kind := binary.NativeEndian.Uint16(b[4:]); {
		case kind == unix.NLMSG_ERROR && binary.NativeEndian.Uint32(b[8:]) == q.seq && !q.Bound && len(body) >= 4:
			q.answered(int32(binary.NativeEndian.Uint32(body)))
		case (kind == msgPacket || kind == msgCopy && q.copies) && len(body) >= nfgenLen:
			q.packet(body[nfgenLen:], handle)
		}
		b = b[min((size+3)&^3, len(b)):]
	}
}

// answered takes the answer to Bind.
func (q *Queue) answered(code int32) {
	switch errno := unix.Errno(-code); {
	case code == 0:
		q.Bound = true
	case errno == unix.EPERM || errno == unix.EBUSY:
		q.Refused = errors.Wrapf(errno, "another process holds %s, or CAP_NET_ADMIN is missing", q)
	case errno == unix.EINVAL:
		q.Refused = errors.Wrapf(errno, "the kernel has no %s: nfnetlink_%s is missing", q, q.module())
	default:
		q.Refused = errors.Wrapf(errno, "asking for %s", q)
	}
}

// packet reads the attributes of a packet.
func (q *Queue) packet(b []byte, handle func(id uint32, packet []byte)) {
	var id uint32
	var payload []byte
	known, cut, content := false, false, uint16(attrPayload)
	if q.copies {
		content = attrCopy
	}
	for len(b) >= attrLen {
		size := int(binary.NativeEndian.Uint16(b))
		if size < attrLen || size > len(b) {
			break
		}
		value := b[attrLen:size]
		switch binary.NativeEndian.Uint16(b[2:]) & attrMask {
		case attrHeader:
			if len(value) >= 4 {
				id, known = binary.BigEndian.Uint32(value), true
			}
		case content:
			payload = value
		case attrWholeLength:
			cut = !q.copies
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	if cut {
		payload = nil
	}
	if known {
		q.undecided++
		handle(id, payload)
	}
}

// Decision is the verdict of one packet: it is accepted unless Drop is set.
type Decision struct {
	ID      uint32
	Drop    bool
	Replace []byte // what is sent on in place of the packet; nil for itself
}

// Decide gives verdicts to the packets that wait, in their order. The kernel sends an accepted packet on behind the
// table whose rule queued it: the rest of that table's chain does not see it.
func (q *Queue) Decide(decisions []Decision) error {
	if len(decisions) == 0 {
		return nil
	}
	plain := len(decisions) == q.undecided
	for _, d := range decisions {
		plain = plain && !d.Drop && d.Replace == nil
	}
	var b []byte
	if plain { // stands for all that wait up to this one
		b = q.verdict(b, msgVerdictBatch, decisions[len(decisions)-1])
	} else {
		for _, d := range decisions {
			b = q.verdict(b, msgVerdict, d)
		}
	}
	if err := q.send(b); err != nil {
		return errors.Wrap(err, "sending verdicts")
	}
	q.undecided -= len(decisions)
	return nil
}

func (q *Queue) verdict(b []byte, kind uint16, d Decision) []byte {
	start, code := len(b), uint32(netfilterAccept)
	if d.Drop {
		code = netfilterDrop
	}
	b = q.message(b, kind, unix.NLM_F_REQUEST)
	b = appendAttr(b, attrVerdict, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, code), d.ID))
	if d.Replace != nil {
		b = appendAttr(b, attrPayload, d.Replace)
	}
	return finish(b, start)
}

// Length returns how many packets wait for a verdict, and how many the kernel dropped because too many waited.
func (q *Queue) Length() (waits, dropped uint64) {
	dropped = q.lost
	if q.counts == nil {
		return 0, dropped
	}
	if _, err := q.counts.Seek(0, io.SeekStart); err != nil {
		return 0, dropped
	}
	for lines := bufio.NewScanner(q.counts); lines.Scan(); {
		var number, port, waiting, mode, length, full, overflow uint64
		n, _ := fmt.Sscan(lines.Text(), &number, &port, &waiting, &mode, &length, &full, &overflow)
		if n == 7 && number == uint64(q.number) && port == uint64(q.port) {
			waits, dropped = waiting, dropped+full+overflow
		}
	}
	return waits, dropped
}
