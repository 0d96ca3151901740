package domainnames

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/domainnames/internal/nfqueue"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// number is the queue's: it has a network namespace to itself.
const number = 7

// slow is how long a client waits on a machine that has much else to do.
const slow = 30 * time.Second

// wire is a node with a client and a DNS server behind a bridge. Rules queue the server's answers, and pass what the
// client sends to port 9 of an address only if the set has the address.
type wire struct {
	t              testing.TB
	backend        lab.Backend
	node           *lab.Node
	client, server *lab.Pod
	sets           *ipset.Conn
}

// eachBackend runs a test with both backends.
func eachBackend(t *testing.T, test func(t *testing.T, w *wire)) {
	for _, backend := range []lab.Backend{lab.NFT, lab.Legacy} {
		t.Run(string(backend), func(t *testing.T) { test(t, newWire(t, backend)) })
	}
}

func newWire(t testing.TB, backend lab.Backend) *wire {
	t.Helper()
	network, err := lab.New(lab.Config{Nodes: 1, IPv4: true, IPv6: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = network.Close() })
	w := &wire{t: t, backend: backend, node: network.Node("node1")}
	w.client, w.server = w.pod("shop/client"), w.pod("kube-system/dns")
	w.in(w.node.Host, func() (err error) {
		w.sets, err = ipset.Open()
		return err
	})
	t.Cleanup(func() { _ = w.sets.Close() })
	made := w.list().Sets
	for _, s := range slices.Concat(w.alive(), made[:]) {
		w.apply(ipset.Op{Kind: ipset.Create, Set: s})
	}
	for _, f := range npc.Families {
		for _, proto := range []string{"udp", "tcp"} {
			w.rule(f, "-p", proto, "--sport", "53", "-m", "conntrack", "--ctstate", "ESTABLISHED", "--ctdir", "REPLY",
				"-j", "NFQUEUE", "--queue-num", strconv.Itoa(number))
		}
		w.rule(f, "-p", "udp", "--dport", "9", "-m", "set", "--match-set", w.list().Sets[f].Name, "dst", "-j", "ACCEPT")
		w.rule(f, "-p", "udp", "--dport", "9", "-j", "DROP")
	}
	w.serve()
	return w
}

func (w *wire) pod(name string) *lab.Pod {
	w.t.Helper()
	p, err := w.node.AddPod(name, lab.PodConfig{})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// in calls a function in a host's network namespace.
func (w *wire) in(h *lab.Host, f func() error) {
	w.t.Helper()
	if err := h.Do(f); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) apply(ops ...ipset.Op) {
	w.t.Helper()
	if err := w.sets.Apply(ops); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) iptables(f npc.Family, args ...string) string {
	w.t.Helper()
	program := "iptables-" + string(w.backend)
	if f == npc.IPv6 {
		program = "ip6tables-" + string(w.backend)
	}
	out, err := w.node.Command(w.t.Context(), program, append([]string{"-w", "60"}, args...)...).Output()
	if err != nil {
		w.t.Fatal(err)
	}
	return string(out)
}

func (w *wire) rule(f npc.Family, args ...string) {
	w.t.Helper()
	w.iptables(f, append([]string{"-A", "FORWARD"}, args...)...)
}

// list is the list of the tests.
func (w *wire) list() List { return List{Key: "one", Names: []string{"*.d"}, Sets: setsOf("one")} }

func (w *wire) alive() (out []ipset.Set) {
	for _, f := range []ipset.Family{ipset.IPv4, ipset.IPv6} {
		out = append(out, ipset.Set{Name: "alive-" + f.String(), Type: ipset.HashNet, Family: f, Timeout: 5})
	}
	return out
}

// open opens a learner whose only subject is the client, and has it follow the list.
func (w *wire) open(log io.Writer) *Learner {
	w.t.Helper()
	l := w.openOnly(log)
	l.Follow([]List{w.list()})
	return l
}

func (w *wire) openOnly(log io.Writer) *Learner {
	w.t.Helper()
	var l *Learner
	w.in(w.node.Host, func() (err error) {
		l, err = Open(Config{Names: NewNames(), Log: slog.New(slog.NewTextHandler(log, nil)), Queue: number, Grace: time.Minute,
			Domain: "cluster.local", Alive: [len(npc.Families)]ipset.Set(w.alive())})
		return err
	})
	for _, a := range w.client.Addrs() {
		l.SetSubject(a, []string{"one"})
	}
	return l
}

// run runs a learner until stop is called, or the test ends.
func (w *wire) run(l *Learner) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

// start starts a learner and waits until it learns.
func (w *wire) start() (l *Learner, stop func()) {
	w.t.Helper()
	l = w.open(io.Discard)
	stop = w.run(l)
	await.That(w.t, "reading the queue", func() bool { return l.why() == nil })
	return l, stop
}

// members returns the addresses and comments of the list's sets.
func (w *wire) members() map[netip.Addr]string {
	w.t.Helper()
	out := map[netip.Addr]string{}
	for _, s := range w.list().Sets {
		found, err := w.sets.ListNamed([]string{s.Name})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, l := range found {
			for _, m := range l.Members {
				out[m.Prefix.Addr()] = m.Comment
			}
		}
	}
	return out
}

// addrOf returns the address that the server gives name n of a family.
func addrOf(f npc.Family, n int) netip.Addr {
	if f == npc.IPv6 {
		return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 9, 14: byte(n >> 8), 15: byte(n)})
	}
	return netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)})
}

// respond returns the answer to a question: name nN.d is an alias of a name that has an address of the question's
// family; bigN.d has 100 of them, and a text of 60,000 bytes.
func respond(query []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	m.Response, m.Additionals = true, nil
	q := m.Questions[0]
	f, count, padding := npc.IPv4, 1, 0
	if q.Type == dnsmessage.TypeAAAA {
		f = npc.IPv6
	}
	var n int
	if _, err := fmt.Sscanf(q.Name.String(), "big%d.d.", &n); err == nil {
		count, padding = 100, 60000
	} else if _, err := fmt.Sscanf(q.Name.String(), "n%d.d.", &n); err != nil {
		return nil
	}
	header := func(name dnsmessage.Name) dnsmessage.ResourceHeader {
		return dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: 300}
	}
	cdn := dnsName("cdn.example.com")
	m.Answers = append(m.Answers,
		dnsmessage.Resource{Header: header(q.Name), Body: &dnsmessage.CNAMEResource{CNAME: cdn}})
	for range padding / 250 {
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: header(cdn),
			Body: &dnsmessage.TXTResource{TXT: []string{strings.Repeat("x", 250-16)}}})
	}
	for i := range count {
		var body dnsmessage.ResourceBody = &dnsmessage.AAAAResource{AAAA: addrOf(f, n+i).As16()}
		if f == npc.IPv4 {
			body = &dnsmessage.AResource{A: addrOf(f, n+i).As4()}
		}
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: header(cdn), Body: body})
	}
	answer, err := m.Pack()
	if err != nil {
		return nil
	}
	return answer
}

// serve answers on port 53 of the server.
func (w *wire) serve() {
	w.t.Helper()
	for _, a := range w.server.Addrs() {
		at := netip.AddrPortFrom(a, 53).String()
		w.in(w.server.Host, func() error {
			datagrams, err := net.ListenPacket("udp", at)
			if err != nil {
				return err
			}
			w.t.Cleanup(func() { _ = datagrams.Close() })
			go serveDatagrams(datagrams)
			streams, err := net.Listen("tcp", at)
			if err != nil {
				return err
			}
			w.t.Cleanup(func() { _ = streams.Close() })
			go serveStreams(streams)
			return nil
		})
	}
}

func serveDatagrams(conn net.PacketConn) {
	for query := make([]byte, 512); ; {
		n, from, err := conn.ReadFrom(query)
		if err != nil {
			return
		}
		_, _ = conn.WriteTo(respond(query[:n]), from)
	}
}

func serveStreams(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			for {
				query, err := readMessage(conn)
				if err != nil {
					return
				}
				if _, err := conn.Write(prefixed(respond(query))); err != nil {
					return
				}
			}
		}()
	}
}

func readMessage(conn io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	m := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(conn, m)
	return m, err
}

func query(f npc.Family, name string) []byte {
	kind := dnsmessage.TypeA
	if f == npc.IPv6 {
		kind = dnsmessage.TypeAAAA
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 1, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsName(name), Type: kind, Class: dnsmessage.ClassINET}}}
	b, _ := m.Pack()
	return b
}

// dial connects the client to the server.
func (w *wire) dial(network string, f npc.Family) net.Conn { return w.dialFrom(w.client, network, f) }

func (w *wire) dialFrom(p *lab.Pod, network string, f npc.Family) net.Conn {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), slow)
	defer cancel()
	conn, err := p.DialContext(ctx, network, netip.AddrPortFrom(w.server.Addr([]int{4, 6}[f]), 53).String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask asks by a connection and returns the error. UDP is asked again, as all clients do.
func ask(conn net.Conn, f npc.Family, name string) error {
	if _, stream := conn.(*net.TCPConn); stream {
		_ = conn.SetDeadline(time.Now().Add(slow))
		if _, err := conn.Write(prefixed(query(f, name))); err != nil {
			return err
		}
		_, err := readMessage(conn)
		return err
	}
	answer := make([]byte, 1<<16)
	var err error
	for range 10 {
		_ = conn.SetDeadline(time.Now().Add(slow / 10))
		if _, err = conn.Write(query(f, name)); err != nil {
			return err
		}
		for err == nil {
			var n int
			if n, err = conn.Read(answer); err == nil && answers(answer[:n], name) {
				return nil
			}
		}
	}
	return err
}

// answers reports whether a message is about a name: one about another is a late answer to a question that was sent
// again.
func answers(message []byte, name string) bool {
	var m dnsmessage.Message
	return m.Unpack(message) == nil && len(m.Questions) == 1 && m.Questions[0].Name == dnsName(name)
}

// prober returns a socket of the client that probes addresses.
func (w *wire) prober(f npc.Family) func(netip.Addr) {
	w.t.Helper()
	var conn net.PacketConn
	network := []string{"udp4", "udp6"}[f]
	w.in(w.client.Host, func() (err error) {
		conn, err = net.ListenPacket(network, ":0")
		return err
	})
	w.t.Cleanup(func() { _ = conn.Close() })
	return func(a netip.Addr) {
		_, err := conn.WriteTo([]byte("probe"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// probed returns how many probes passed, and how many were dropped.
func (w *wire) probed(f npc.Family) (passed, dropped int) {
	w.t.Helper()
	for line := range strings.Lines(w.iptables(f, "-L", "FORWARD", "-nvx")) {
		fields := strings.Fields(line)
		if len(fields) > 3 && strings.Contains(line, "dpt:9") {
			n, _ := strconv.Atoi(fields[0])
			if fields[2] == "ACCEPT" {
				passed += n
			} else {
				dropped += n
			}
		}
	}
	return passed, dropped
}

// TestS109_LookupsAreHeld: 2,000 lookups, each followed at once by a packet to the address.
func TestS109_LookupsAreHeld(t *testing.T) {
	const each = 500
	eachBackend(t, func(t *testing.T, w *wire) {
		l, _ := w.start()
		for _, f := range npc.Families {
			probe := w.prober(f)
			for at, network := range []string{"udp", "tcp"} {
				conn := w.dial(network, f)
				for n := range each {
					if n%10 == 0 {
						conn = w.dial(network, f)
					}
					if err := ask(conn, f, fmt.Sprintf("n%d.d", at*each+n)); err != nil {
						t.Fatalf("%s %s, lookup %d: %v", network, f, n, err)
					}
					probe(addrOf(f, at*each+n))
				}
			}
			if passed, dropped := w.probed(f); passed != 2*each || dropped > 0 {
				t.Errorf("%s: %d probes passed, %d were dropped", f, passed, dropped)
			}
		}
		if c := l.snapshot(); c.Held != 4*each || c.Resets+c.Lost+c.Refused+c.Evicted > 0 {
			t.Errorf("counts %+v", c)
		}
	})
}

// TestS109_LargeAnswersAreHeld, in fragments and in many segments.
func TestS109_LargeAnswersAreHeld(t *testing.T) {
	eachBackend(t, func(t *testing.T, w *wire) {
		w.start()
		for _, f := range npc.Families {
			probe := w.prober(f)
			for at, network := range []string{"udp", "tcp"} {
				conn := w.dial(network, f)
				for n := range 5 {
					first := (at*5 + n) * 100
					if err := ask(conn, f, fmt.Sprintf("big%d.d", first)); err != nil {
						t.Fatalf("%s %s, lookup %d: %v", network, f, n, err)
					}
					for i := range 100 {
						probe(addrOf(f, first+i))
					}
				}
			}
			if passed, dropped := w.probed(f); passed != 1000 || dropped > 0 {
				t.Errorf("%s: %d probes passed, %d were dropped", f, passed, dropped)
			}
		}
	})
}

// TestS114_ARestartLosesNothing, and resets streams that are older.
func TestS114_ARestartLosesNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, w *wire) {
		l, stop := w.start()
		var streams []net.Conn
		for _, f := range npc.Families {
			streams = append(streams, w.dial("tcp", f))
			for n := range 20 {
				if err := ask(streams[f], f, fmt.Sprintf("n%d.d", n)); err != nil {
					t.Fatal(err)
				}
			}
		}
		before := l.learned()
		stop()
		l, _ = w.start()
		after := l.learned()
		if len(before) != 40 || len(after) != 40 || len(w.members()) != 40 {
			t.Fatalf("%d addresses before, %d after, %d in the sets", len(before), len(after), len(w.members()))
		}
		for i := range after {
			if gap := before[i].Until.Sub(after[i].Until).Abs(); after[i].Name != before[i].Name ||
				after[i].Addr != before[i].Addr || gap > 2*time.Second {
				t.Errorf("before %+v, after %+v", before[i], after[i])
			}
		}
		for _, f := range npc.Families {
			if err := ask(streams[f], f, "n30.d"); err == nil || !strings.Contains(err.Error(), "reset") {
				t.Errorf("%s: an older stream: %v", f, err)
			}
			if err := ask(w.dial("tcp", f), f, "n30.d"); err != nil {
				t.Errorf("%s: a new stream: %v", f, err)
			}
		}
		if c := l.snapshot(); c.Resets == 0 || c.Held != 42 {
			t.Errorf("counts %+v", c)
		}
	})
}

// TestS114_NoAnswerPassesBeforeTheListsAreKnown, as after a restart: the rules are there.
func TestS114_NoAnswerPassesBeforeTheListsAreKnown(t *testing.T) {
	w := newWire(t, lab.NFT)
	l := w.openOnly(io.Discard)
	w.run(l)
	conn, answer := w.dial("udp", npc.IPv4), make([]byte, 1<<16)
	if _, err := conn.Write(query(npc.IPv4, "n1.d")); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	if n, err := conn.Read(answer); err == nil {
		t.Fatalf("%d bytes came", n)
	}
	l.Follow([]List{w.list()})
	_ = conn.SetReadDeadline(time.Now().Add(slow))
	if _, err := conn.Read(answer); err != nil || w.members()[addrOf(npc.IPv4, 1)] != "n1.d" {
		t.Errorf("%v, members %v", err, w.members())
	}
}

// TestAQueueThatAnotherHolds is waited for, and the sets do not say meanwhile that it is read.
func TestAQueueThatAnotherHolds(t *testing.T) {
	w := newWire(t, lab.NFT)
	var other *nfqueue.Queue
	w.in(w.node.Host, func() (err error) {
		other, err = nfqueue.Open(number, false)
		return err
	})
	var log logBuffer
	l := w.open(&log)
	w.run(l)
	await.That(t, "reporting it", func() bool {
		return l.why() != nil && strings.Contains(l.why().Error(), "another process holds queue 7") &&
			strings.Contains(log.String(), "another process")
	})
	shown := func() (n int) {
		for _, s := range w.alive() {
			found, err := w.sets.ListNamed([]string{s.Name})
			if err != nil {
				t.Fatal(err)
			}
			n += len(found[0].Members)
		}
		return n
	}
	if n := shown(); n > 0 {
		t.Errorf("the sets have %d networks", n)
	}
	other.Close()
	await.That(t, "taking it over", func() bool { return l.why() == nil && shown() == 4 })
	if err := ask(w.dial("udp", npc.IPv4), npc.IPv4, "n1.d"); err != nil || len(w.members()) != 1 {
		t.Errorf("%v, members %v", err, w.members())
	}
}

// logBuffer is a buffer for a log that is read meanwhile.
type logBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestS113_AFloodIsCounted, whether the queue is full or the socket's buffer, and is over when it is over.
func TestS113_AFloodIsCounted(t *testing.T) {
	for what, buffer := range map[string]int{"queue": 0, "buffer": 100 << 10} {
		t.Run(what, func(t *testing.T) {
			w := newWire(t, lab.NFT)
			l := w.open(io.Discard)
			if buffer > 0 {
				_ = l.queue.Conn.Control(func(fd uintptr) {
					if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, buffer); err != nil {
						t.Error(err)
					}
				})
			}
			conn := w.dial("udp", npc.IPv4)
			await.That(t, "filling it", func() bool {
				for n := range 200 {
					if _, err := conn.Write(query(npc.IPv4, fmt.Sprintf("n%d.d", n))); err != nil {
						t.Fatal(err)
					}
				}
				_, dropped := l.queue.Length()
				return dropped > 0
			})
			w.run(l)
			await.That(t, "emptying it", func() bool { return l.snapshot().Answers > 0 && l.snapshot().Lost > 0 })
			for n := 300; n < 320; n++ {
				if err := ask(w.dial("udp", npc.IPv4), npc.IPv4, fmt.Sprintf("n%d.d", n)); err != nil {
					t.Error(err)
				} else if a := addrOf(npc.IPv4, n); w.members()[a] != fmt.Sprintf("n%d.d", n) {
					t.Errorf("%s is not in the set", a)
				}
			}
		})
	}
}

// startWithoutSet starts a learner whose list has no set for IPv4. Only answers by UDP are queued, and nothing is dropped.
func startWithoutSet(t *testing.T) (*wire, *Learner) {
	t.Helper()
	w := newWire(t, lab.NFT)
	l := w.open(io.Discard)
	l.retryFor = 3 * retryFor // so that a test can act meanwhile on a busy machine
	w.run(l)
	await.That(t, "reading the queue", func() bool { return l.why() == nil })
	w.iptables(npc.IPv4, "-F", "FORWARD")
	w.rule(npc.IPv4, "-p", "udp", "--sport", "53", "-j", "NFQUEUE", "--queue-num", strconv.Itoa(number))
	w.apply(ipset.Op{Kind: ipset.Destroy, Set: w.list().Sets[npc.IPv4]})
	return w, l
}

// TestS109_ARefusedAnswerIsAskedAgain when the set is there, unless that is soon.
func TestS109_ARefusedAnswerIsAskedAgain(t *testing.T) {
	w, l := startWithoutSet(t)
	conn := w.dial("udp", npc.IPv4)
	if _, err := conn.Write(query(npc.IPv4, "n1.d")); err != nil {
		t.Fatal(err)
	}
	await.That(t, "dropping it", func() bool { return l.snapshot().Refused == 1 })
	if _, err := conn.Write(query(npc.IPv4, "n2.d")); err != nil {
		t.Fatal(err)
	}
	await.That(t, "waiting for the set", func() bool { return l.snapshot().Late == 2 })
	w.apply(ipset.Op{Kind: ipset.Create, Set: w.list().Sets[npc.IPv4]})
	_ = conn.SetReadDeadline(time.Now().Add(slow))
	if _, err := conn.Read(make([]byte, 512)); err != nil || w.members()[addrOf(npc.IPv4, 2)] != "n2.d" {
		t.Errorf("one that waited: %v, members %v", err, w.members())
	}
	if err := ask(conn, npc.IPv4, "n1.d"); err != nil || w.members()[addrOf(npc.IPv4, 1)] != "n1.d" {
		t.Errorf("%v, members %v", err, w.members())
	}
}

// TestS109_OthersPassWhileAnAnswerWaits for its set, and it does not pass with them.
func TestS109_OthersPassWhileAnAnswerWaits(t *testing.T) {
	w, l := startWithoutSet(t)
	waits, other := w.dial("udp", npc.IPv4), w.dial("udp", npc.IPv4)
	if _, err := waits.Write(query(npc.IPv4, "n1.d")); err != nil {
		t.Fatal(err)
	}
	await.That(t, "waiting for its set", func() bool { return l.snapshot().Late == 1 })
	for n := range 5 {
		if err := ask(other, npc.IPv6, fmt.Sprintf("n%d.d", n)); err != nil {
			t.Fatal(err)
		}
	}
	_ = waits.SetReadDeadline(time.Now().Add(retryFor / 4))
	if n, err := waits.Read(make([]byte, 512)); err == nil {
		t.Errorf("%d bytes came before their set", n)
	}
	w.apply(ipset.Op{Kind: ipset.Create, Set: w.list().Sets[npc.IPv4]})
	if err := ask(waits, npc.IPv4, "n1.d"); err != nil || w.members()[addrOf(npc.IPv4, 1)] != "n1.d" {
		t.Errorf("%v, members %v", err, w.members())
	}
}

// TestS108_ExpiryDeletes on time, although the kernel would wait.
func TestS108_ExpiryDeletes(t *testing.T) {
	w := newWire(t, lab.NFT)
	l := w.open(io.Discard)
	l.Grace = -299 * time.Second // the TTL is 300 s
	w.run(l)
	if err := ask(w.dial("udp", npc.IPv4), npc.IPv4, "n1.d"); err != nil {
		t.Fatal(err)
	}
	await.That(t, "deleting it", func() bool { return l.snapshot().Learned > 0 && len(l.learned())+len(w.members()) == 0 })
}
