package conntrack

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// batch is how many connections are opened before their events are read.
const batch = 2000

// BenchmarkEvents opens UDP connections that the node forwards, in turns without a subscription and with it.
// "first-more-ns" is how much longer the first packet of a connection takes with it, sending included, and "read-ns"
// what the reader takes for each event: the medians of batches.
func BenchmarkEvents(b *testing.B) {
	s := newScene(b)
	s.reader.Close()
	s.sink(b)
	packets := newPackets(s.web.Addr4(), s.db.Addr4(), 5000)
	var first, more, read []float64
	for b.Loop() {
		for range 20 {
			s.flush()
			without := s.send(packets)
			s.flush()
			s.subscribe(b)
			with := s.send(packets)
			seen := 0
			read = append(read, onThread(func() {
				_ = s.reader.read(func(all []Opened) { seen += len(all) })
			})/batch)
			s.reader.Close()
			if seen < batch || s.reader.Lost() > 0 {
				b.Fatalf("%d of %d events, %d lost", seen, batch, s.reader.Lost())
			}
			first, more = append(first, without), append(more, with-without)
		}
	}
	b.ReportMetric(middle(first), "first-ns")
	b.ReportMetric(middle(more), "first-more-ns")
	b.ReportMetric(middle(read), "read-ns")
	b.ReportMetric(middle(more)/middle(first), "x/first")
	b.ReportMetric(middle(read)/middle(first), "read/first")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkReplies holds whole TCP connections, with ways to learn that there was a reply. "more-ns" is how much longer
// a connection takes than without any subscription, and "read-ns" what reading takes for each connection. The updates
// are those of each state that a connection takes.
func BenchmarkReplies(b *testing.B) {
	for name, groups := range map[string][]int{"new": {unix.NFNLGRP_CONNTRACK_NEW}, "new+update": {unix.NFNLGRP_CONNTRACK_NEW, unix.NFNLGRP_CONNTRACK_UPDATE}} {
		b.Run(name, func(b *testing.B) {
			s := newScene(b)
			s.reader.Close()
			listener := s.listen(b)
			defer unix.Close(listener)
			var more, read []float64
			for b.Loop() {
				for range 20 {
					without := s.converse(b, listener)
					subscribed := s.subscriptions(b, groups)
					with := s.converse(b, listener)
					read = append(read, onThread(func() { drain(b, subscribed) })/conversations)
					more = append(more, with-without)
				}
			}
			b.ReportMetric(middle(more), "more-ns")
			b.ReportMetric(middle(read), "read-ns")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkReplied lists a table of connections; most got a reply.
func BenchmarkReplied(b *testing.B) {
	s := newScene(b)
	s.reader.Close()
	for range 20 {
		s.send(newPackets(s.web.Addr4(), s.db.Addr4(), 53))
		time.Sleep(100 * time.Millisecond) // for the answers
	}
	found, took := 0, 0.0
	for b.Loop() {
		err := s.node.Do(func() (err error) {
			found = 0
			took = onThread(func() { err = Replied(func(Opened) { found++ }) })
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if found == 0 {
		b.Fatal("nothing was answered")
	}
	b.ReportMetric(float64(found), "replied")
	b.ReportMetric(took/float64(20*batch), "entry-ns")
}

var nextPort atomic.Int64

// packet is one of UDP that opens a connection.
type packet []byte

func newPackets(from, to netip.Addr, port uint16) (all []packet) {
	for range batch {
		p := make(packet, 32)
		p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
		binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
		copy(p[12:], from.AsSlice())
		copy(p[16:], to.AsSlice())
		binary.BigEndian.PutUint16(p[22:], port)
		binary.BigEndian.PutUint16(p[24:], uint16(len(p)-20))
		all = append(all, p)
	}
	return all
}

// next gives the packet another port to come from.
func (p packet) next() { binary.BigEndian.PutUint16(p[20:], uint16(1024+nextPort.Add(1)%64000)) }

// send sends packets, which each open a connection, and returns how long one takes.
func (s *scene) send(all []packet) (took float64) {
	err := s.web.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, p := range all {
			p.next()
		}
		to := &unix.SockaddrInet4{Addr: [4]byte(all[0][16:20])}
		took = onThread(func() {
			for _, p := range all {
				if e := unix.Sendto(fd, p, 0, to); e != nil {
					err = e
				}
			}
		}) / float64(len(all))
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
	return took
}

// flush has the node forget all connections, whose ports are free again then.
func (s *scene) flush() {
	if out, err := s.node.Command(s.Context(), "conntrack", "-F").CombinedOutput(); err != nil {
		s.Fatalf("%v: %s", err, out)
	}
}

// sink has the packets end without an answer.
func (s *scene) sink(b *testing.B) {
	b.Helper()
	if out, err := s.db.Command(b.Context(), "iptables", strings.Fields("-w -t raw -A PREROUTING -p udp -j DROP")...).CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
}

func (s *scene) subscribe(b *testing.B) {
	b.Helper()
	if err := s.node.Do(func() (err error) {
		s.reader, err = OpenEvents()
		return err
	}); err != nil {
		b.Fatal(err)
	}
}

const conversations = 500

// listen returns a socket that takes connections to the pod.
func (s *scene) listen(b *testing.B) (fd int) {
	b.Helper()
	err := s.db.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err = unix.Bind(fd, &unix.SockaddrInet4{Port: 7000}); err != nil {
			return err
		}
		return unix.Listen(fd, 100)
	})
	if err != nil {
		b.Fatal(err)
	}
	return fd
}

// converse opens and ends connections, one after the other, and returns how long one takes.
func (s *scene) converse(b *testing.B, listener int) (took float64) {
	b.Helper()
	s.flush()
	to := &unix.SockaddrInet4{Port: 7000, Addr: s.db.Addr4().As4()}
	err := s.web.Do(func() (err error) {
		took = onThread(func() {
			for range conversations {
				if e := talk(listener, to); e != nil {
					err = e
				}
			}
		}) / conversations
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return took
}

func talk(listener int, to unix.Sockaddr) error {
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(client)
	if err := unix.Connect(client, to); err != nil {
		return err
	}
	server, _, err := unix.Accept(listener)
	if err != nil {
		return err
	}
	defer unix.Close(server)
	_, err = unix.Write(client, []byte("x"))
	// A reset, so that the port is free again.
	_ = unix.SetsockoptLinger(client, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	return err
}

func (s *scene) subscriptions(b *testing.B, groups []int) (all []*subscription) {
	b.Helper()
	err := s.node.Do(func() error {
		for _, g := range groups {
			opened, err := subscribe(g, bufferSize)
			if err != nil {
				return err
			}
			all = append(all, opened)
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return all
}

// drain reads the events of subscriptions, and closes them.
func drain(b *testing.B, all []*subscription) {
	b.Helper()
	for _, s := range all {
		for ok := true; ok; {
			var err error
			if _, ok, err = s.next(); err != nil {
				b.Fatal(err)
			}
		}
		s.conn.close()
	}
}

// onThread returns how long a function keeps the processor, in nanoseconds. A packet is forwarded by the thread that
// sends it.
func onThread(f func()) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
			panic(err) // every kernel has that clock
		}
		return time.Duration(t.Nano())
	}
	start := now()
	f()
	return float64(now() - start)
}

func middle(l []float64) float64 {
	slices.Sort(l)
	return l[len(l)/2]
}
