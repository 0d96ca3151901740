package lab

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/await"
)

// StreamFlow is a flow that a stream opens again and again, each time as a new connection: from a port, or with an
// identifier, that was not used for long.
type StreamFlow struct {
	From, To *Host
	Family   int    // 4 or 6: between the first addresses of that family
	Proto    string // udp or icmp, which send nothing twice
	Port     uint16 // of udp: only the stream may serve it
	// Denied is whether nothing may arrive. Otherwise everything must arrive and be answered.
	Denied bool
}

// String names the flow, with its wanted result.
func (f StreamFlow) String() string {
	what := "allowed"
	if f.Denied {
		what = "denied"
	}
	return fmt.Sprintf("%s to %s, %s, IPv%d, %s", f.From.name, f.To.name, f.Proto, f.Family, what)
}

// StreamResult is what became of the flows of a stream.
type StreamResult struct {
	// Opened is how many were opened; of these, WrongAccepts arrived although denied, and WrongDrops were not answered
	// although allowed.
	Opened, WrongAccepts, WrongDrops int
	// Took is for how long they were opened.
	Took time.Duration
	// Wrong describes the first of these, each with its time.
	Wrong []string
}

// Add adds another stream's result.
func (r *StreamResult) Add(other StreamResult) {
	r.Opened += other.Opened
	r.WrongAccepts += other.WrongAccepts
	r.WrongDrops += other.WrongDrops
	r.Took += other.Took
	r.Wrong = append(r.Wrong, other.Wrong...)
}

var (
	// streamAnswered is how long an answer may take on a busy machine.
	streamAnswered = await.Scaled(5 * time.Second)
	// streamDenied is how long an answer that must not come is waited for.
	streamDenied = await.Scaled(200 * time.Millisecond)
	// streamLate is how long a stream waits once more when this process may have been late itself.
	streamLate = await.Scaled(time.Second)
)

const (
	// streamDelay is the longest delay that is made up for, streamBurst the most flows that are opened at once to do
	// so.
	streamDelay = time.Second
	streamBurst = 32
	// streamWrong is the most wrong flows that are described.
	streamWrong = 40
)

// Stream opens new flows at a steady rate, in turn and over and over, and counts the results. One goroutine sends,
// serves and receives.
type Stream struct {
	flows  []StreamFlow
	opened atomic.Int64
	stop   chan struct{}
	done   chan struct{}

	epoll   int
	servers map[int]*Host           // descriptor -> host that serves
	waiting map[int]*opened         // descriptor -> flow that may still be answered
	queues  map[bool][]*opened      // denied -> those flows in the order of their deadlines
	arrived map[uint64]*opened      // number -> flow of udp
	bound   map[netip.AddrPort]bool // what is served
	result  StreamResult
	failure error
}

// opened is a flow that was opened and that is not over.
type opened struct {
	*StreamFlow
	number   uint64
	socket   int
	at       time.Time
	deadline time.Time
	seen     bool // by the server
	late     bool // it had its second chance
	over     bool
}

// NewStream starts a stream of that many flows a second.
func NewStream(rate int, flows []StreamFlow) (*Stream, error) {
	s := &Stream{flows: flows, stop: make(chan struct{}), done: make(chan struct{}), servers: map[int]*Host{},
		waiting: map[int]*opened{}, queues: map[bool][]*opened{}, arrived: map[uint64]*opened{},
		bound: map[netip.AddrPort]bool{}}
	var err error
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, errors.Wrap(err, "making an epoll instance")
	}
	for _, f := range flows {
		if f.Proto != "udp" {
			continue
		}
		if err := s.serve(f.To, netip.AddrPortFrom(f.To.Addr(f.Family), f.Port)); err != nil {
			s.closeAll()
			return nil, errors.Wrapf(err, "serving %s", f)
		}
	}
	go s.run(rate)
	return s, nil
}

// Opened returns how many flows were opened up to now.
func (s *Stream) Opened() int { return int(s.opened.Load()) }

// Round waits until each flow was opened once more.
func (s *Stream) Round(ctx context.Context) {
	for until := s.Opened() + len(s.flows); s.Opened() < until && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		select {
		case <-s.done:
			return
		default:
		}
	}
}

// Close opens no more flows, and returns what became of all once that is known. It may be called once. An error is
// one of the lab, and makes the result worthless.
func (s *Stream) Close() (StreamResult, error) {
	close(s.stop)
	<-s.done
	return s.result, s.failure
}

// serve opens a server, one for all flows to it.
func (s *Stream) serve(h *Host, at netip.AddrPort) error {
	if s.bound[at] {
		return nil
	}
	s.bound[at] = true
	return h.inside(func() error {
		fd, err := streamSocket(at.Addr(), unix.IPPROTO_UDP)
		if err != nil {
			return err
		}
		s.servers[fd] = h
		address, err := socketAddress(at.Addr(), at.Port())
		if err != nil {
			return err
		}
		err = unix.Bind(fd, address)
		// A process that is just being started has all that an earlier stream had open.
		for range 1000 {
			if err != unix.EADDRINUSE {
				break
			}
			time.Sleep(time.Millisecond)
			err = unix.Bind(fd, address)
		}
		if err != nil {
			return errors.Wrapf(err, "binding to %s", at)
		}
		return s.watch(fd)
	})
}

func streamSocket(of netip.Addr, protocol int) (int, error) {
	family := unix.AF_INET
	if of.Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
	return fd, errors.Wrap(err, "opening a socket")
}

func (s *Stream) watch(fd int) error {
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	return errors.Wrap(unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &event), "watching a socket")
}

// run is the stream's one goroutine.
func (s *Stream) run(rate int) {
	defer close(s.done)
	defer s.closeAll()
	interval := time.Second / time.Duration(rate)
	start := time.Now()
	next, stop := start, s.stop
	for stop != nil || len(s.waiting) > 0 {
		select {
		case <-stop:
			stop = nil
			s.result.Took = time.Since(start)
		default:
		}
		if now := time.Now(); now.Sub(next) > streamDelay {
			next = now.Add(-streamDelay)
		}
		for burst := 0; stop != nil && burst < streamBurst && !time.Now().Before(next); burst++ {
			next = next.Add(interval)
			number := uint64(s.opened.Load())
			f := s.flowOf(number)
			if err := f.From.inside(func() error { return s.open(f, number) }); err != nil {
				s.failure = errors.Wrapf(err, "opening a flow from %s", f)
				return
			}
			s.opened.Add(1)
		}
		if err := s.receive(); err != nil {
			s.failure = err
			return
		}
		s.expire(time.Now())
	}
	s.result.Opened = s.Opened()
}

// flowOf returns the flow that has a number: they take turns.
func (s *Stream) flowOf(number uint64) *StreamFlow { return &s.flows[number%uint64(len(s.flows))] }

// open sends the one packet of a new flow, from the host that it comes from.
func (s *Stream) open(f *StreamFlow, number uint64) error {
	protocol := unix.IPPROTO_UDP
	switch {
	case f.Proto == "icmp" && f.Family == 4:
		protocol = unix.IPPROTO_ICMP
	case f.Proto == "icmp":
		protocol = unix.IPPROTO_ICMPV6
	}
	from, to := f.From.Addr(f.Family), f.To.Addr(f.Family)
	fd, err := streamSocket(to, protocol)
	if err != nil {
		return err
	}
	o := &opened{StreamFlow: f, number: number, socket: fd, at: time.Now()}
	o.deadline = o.at.Add(streamAnswered)
	if f.Denied {
		o.deadline = o.at.Add(streamDenied)
	}
	if err := s.sendFirst(o, netip.AddrPortFrom(from, f.From.FreshPort()), to); err != nil {
		unix.Close(fd)
		return err
	}
	s.waiting[fd] = o
	s.queues[f.Denied] = append(s.queues[f.Denied], o)
	if f.Proto == "udp" {
		s.arrived[o.number] = o
	}
	return s.watch(fd)
}

func (s *Stream) sendFirst(o *opened, from netip.AddrPort, to netip.Addr) error {
	local, err := socketAddress(from.Addr(), from.Port())
	if err != nil {
		return err
	}
	if err := unix.Bind(o.socket, local); err != nil {
		return errors.Wrapf(err, "sending from %s", from)
	}
	remote, err := socketAddress(to, o.Port)
	if err != nil {
		return err
	}
	const header, echoRequest, echoRequest6 = 8, 8, 128
	packet := make([]byte, header+8)
	binary.BigEndian.PutUint64(packet[header:], o.number)
	switch {
	case o.Proto == "udp":
		packet = packet[header:]
	case o.Family == 4:
		packet[0] = echoRequest
	default:
		packet[0] = echoRequest6
	}
	err = unix.Sendto(o.socket, packet, 0, remote)
	if err == unix.EPERM {
		err = nil // the host's own OUTPUT chain dropped it
	}
	return errors.Wrapf(err, "sending to %s", to)
}

// FreshPort returns a port or an identifier that the host has not used for long. It is below the kernel's ephemeral
// ports: one of these may be that of a flow that was allowed a moment ago, and is still.
func (h *Host) FreshPort() uint16 {
	const first, last = 1024, 32767
	return first + uint16(h.fresh.Add(1)%(last-first))
}

// receive takes what has come, waiting for a moment if there is nothing.
func (s *Stream) receive() error {
	events := make([]unix.EpollEvent, 64)
	n, err := unix.EpollWait(s.epoll, events, 1)
	if err != nil && err != unix.EINTR {
		return errors.Wrap(err, "waiting for packets")
	}
	for _, e := range events[:max(n, 0)] {
		if h := s.servers[int(e.Fd)]; h != nil {
			s.answer(int(e.Fd), h)
		} else if o := s.waiting[int(e.Fd)]; o != nil {
			s.answered(o)
		}
	}
	return nil
}

// answer sends back what has come to a server.
func (s *Stream) answer(fd int, h *Host) {
	packet := make([]byte, 64)
	for {
		n, from, err := unix.Recvfrom(fd, packet, 0)
		if err == unix.EAGAIN {
			return
		}
		if err != nil || n < 8 {
			continue // an error about an earlier answer
		}
		number := binary.BigEndian.Uint64(packet)
		o := s.arrived[number]
		if o == nil { // later than anybody waits for it
			o = &opened{StreamFlow: s.flowOf(number), number: number, at: time.Now()}
		}
		o.seen = true
		if o.Denied {
			s.accepted(o, "arrived")
			continue
		}
		// An answer that cannot be sent is one that the other end misses.
		_ = h.inside(func() error { return unix.Sendto(fd, packet[:n], 0, from) })
	}
}

// answered records that the sender of a flow got a packet back.
func (s *Stream) answered(o *opened) {
	n, _, err := unix.Recvfrom(o.socket, make([]byte, 64), 0)
	switch {
	case err == unix.EAGAIN:
		return
	case o.Denied && err == nil:
		s.accepted(o, "was answered")
	case o.Denied: // an error means that it was refused on its way
	case err != nil || n == 0:
		s.dropped(o, fmt.Sprintf("failed: %v", err))
	}
	s.end(o)
}

// expire ends what is waited for no longer.
func (s *Stream) expire(now time.Time) {
	for denied, queue := range s.queues {
		for len(queue) > 0 && (queue[0].over || now.After(queue[0].deadline) && !s.comesLate(queue[0], now)) {
			if o := queue[0]; !o.over {
				if !denied {
					what := "did not arrive"
					if o.seen {
						what = "arrived, and its answer did not"
					}
					s.dropped(o, what)
				}
				s.end(o)
			}
			queue = queue[1:]
		}
		s.queues[denied] = queue
	}
}

// comesLate gives a flow that seems lost a second chance: on a busy machine this process may not have looked.
func (s *Stream) comesLate(o *opened, now time.Time) bool {
	if o.Denied || o.late {
		return false
	}
	for fd, h := range s.servers {
		s.answer(fd, h)
	}
	o.late, o.deadline = true, now.Add(streamLate)
	s.answered(o)
	return !o.over
}

func (s *Stream) end(o *opened) {
	o.over = true
	unix.Close(o.socket)
	delete(s.waiting, o.socket)
	delete(s.arrived, o.number)
}

func (s *Stream) accepted(o *opened, what string) {
	s.result.WrongAccepts++
	s.wrong(o, what)
}

func (s *Stream) dropped(o *opened, what string) {
	s.result.WrongDrops++
	s.wrong(o, what)
}

func (s *Stream) wrong(o *opened, what string) {
	if len(s.result.Wrong) < streamWrong {
		at := o.at.UTC().Format("15:04:05.000000")
		s.result.Wrong = append(s.result.Wrong, fmt.Sprintf("%s %s: %s", at, o.StreamFlow, what))
	}
}

func (s *Stream) closeAll() {
	for fd := range s.waiting {
		unix.Close(fd)
	}
	for fd := range s.servers {
		unix.Close(fd)
	}
	unix.Close(s.epoll)
}
