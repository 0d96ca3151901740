package ulogd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/sandbox"
)

// testMark marks what is logged; 0x77656176.
const testMark = 2003132790

// timeout is how long a test waits for what must happen before it gives up: longer than a busy machine needs.
var timeout = await.Scaled(2 * time.Minute)

func testTiming() timing {
	p := defaultTiming()
	p.lookAgain = 20 * time.Millisecond
	p.firstDelay = 10 * time.Millisecond
	p.maxDelay = 100 * time.Millisecond
	p.lossPeriod = 20 * time.Millisecond
	return p
}

func testGroups() []Group {
	return []Group{{Number: 86, Name: "ingress"}, {Number: 87, Name: "egress"}}
}

// inNamespace is sandbox.Thread with rules that log what goes to 127.0.0.1 to group 86, to 127.0.0.2 to group 87, and
// to ::1 to group 86, but UDP to port 53 to group 87. What goes to 127.0.0.3 goes to group 86 without testMark.
func inNamespace(t *testing.T) {
	t.Helper()
	sandbox.Thread(t)
	for _, rule := range []string{
		"iptables -w -A OUTPUT -d 127.0.0.3 -j NFLOG --nflog-group 86 --nflog-prefix ingress",
		"iptables -w -A OUTPUT -j MARK --set-xmark 0x77656176",
		"ip6tables -w -A OUTPUT -j MARK --set-xmark 0x77656176",
		"iptables -w -A OUTPUT -d 127.0.0.1 -j NFLOG --nflog-group 86 --nflog-prefix ingress",
		"iptables -w -A OUTPUT -d 127.0.0.2 -j NFLOG --nflog-group 87 --nflog-prefix egress",
		"ip6tables -w -A OUTPUT -d ::1 -p udp --dport 53 -j NFLOG --nflog-group 87 --nflog-prefix egress",
		"ip6tables -w -A OUTPUT -d ::1 ! -p udp -j NFLOG --nflog-group 86 --nflog-prefix ingress",
	} {
		args := strings.Fields(rule)
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", rule, err, out)
		}
	}
}

// record is one line of the log.
type record struct {
	level slog.Level
	text  string
	pid   int
}

// logBook keeps what was logged.
type logBook struct {
	mu      sync.Mutex
	records []record
}

func (l *logBook) Enabled(context.Context, slog.Level) bool { return true }
func (l *logBook) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logBook) WithGroup(string) slog.Handler            { return l }
func (l *logBook) Handle(_ context.Context, r slog.Record) error {
	rec := record{level: r.Level, text: r.Message}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "pid" {
			rec.pid = int(a.Value.Int64())
		}
		rec.text += " " + a.String()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, rec)
	return nil
}

// find returns the records whose text contains s.
func (l *logBook) find(s string) []record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []record
	for _, r := range l.records {
		if strings.Contains(r.text, s) {
			found = append(found, r)
		}
	}
	return found
}

// session is a Run in the namespace of the test that started it.
type session struct {
	log   *logBook
	stats *Stats
	stop  context.CancelFunc
	done  chan error

	mu      sync.Mutex
	packets []Packet
}

func startRun(t *testing.T, c Config, p timing) *session {
	t.Helper()
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &session{log: &logBook{}, stats: new(Stats), stop: cancel, done: make(chan error, 1)}
	c.Mark = testMark
	c.Log, c.Stats = slog.New(s.log), s.stats
	go func() {
		defer ns.Close()
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			s.done <- err
			return
		}
		s.done <- run(ctx, c, p, s.add)
	}()
	t.Cleanup(func() {
		cancel()
		if t.Failed() {
			for _, r := range s.log.find("") {
				t.Logf("%s %s", r.level, r.text)
			}
		}
	})
	return s
}

func (s *session) add(p Packet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packets = append(s.packets, p)
}

func (s *session) seen() []Packet {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.packets)
}

// awaitRunning waits until ulogd2 has come up for the n-th time and returns its process id.
func (s *session) awaitRunning(t *testing.T, n int) int {
	t.Helper()
	await.That(t, fmt.Sprintf("start %d of ulogd2", n), func() bool { return len(s.log.find("ulogd2 runs")) >= n })
	return s.log.find("ulogd2 runs")[n-1].pid
}

// awaitPort waits for a packet to the given port.
func (s *session) awaitPort(t *testing.T, port int) {
	t.Helper()
	await.That(t, fmt.Sprintf("packet to port %d", port), func() bool {
		return slices.ContainsFunc(s.seen(), func(p Packet) bool { return int(p.DstPort) == port })
	})
}

// end ends the Run and waits for it.
func (s *session) end(t *testing.T) {
	t.Helper()
	s.stop()
	select {
	case err := <-s.done:
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
	case <-time.After(timeout):
		t.Fatal("Run did not end with its context")
	}
}

// send sends b to address:port through a socket of the given kind; port is ignored by raw sockets.
func send(t *testing.T, kind, protocol int, address string, port int, b []byte) {
	t.Helper()
	family, to := unix.AF_INET, unix.Sockaddr(nil)
	if strings.Contains(address, ":") {
		family = unix.AF_INET6
		to6 := &unix.SockaddrInet6{}
		if kind != unix.SOCK_RAW {
			to6.Port = port
		}
		to6.Addr[15] = 1
		to = to6
	} else {
		to4 := &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, address[len(address)-1] - '0'}}
		to = to4
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		t.Fatalf("socket: %v", err)
	}
	defer unix.Close(fd)
	if kind == unix.SOCK_STREAM {
		err = unix.Connect(fd, to)
	} else {
		err = unix.Sendto(fd, b, 0, to)
	}
	if err != nil && err != unix.EINPROGRESS && err != unix.ECONNREFUSED {
		t.Fatalf("sending to %s: %v", address, err)
	}
}
