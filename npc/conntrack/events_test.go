package conntrack

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// scene is a node with two pods and a reader of its events.
type scene struct {
	testing.TB
	harness *lab.Network
	node    *lab.Node
	web, db *lab.Pod
	reader  *EventReader
}

func newScene(t testing.TB) *scene {
	t.Helper()
	w, err := lab.New(lab.Config{Nodes: 1, IPv4: true, IPv6: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &scene{TB: t, harness: w, node: w.Nodes()[0]}
	for name, pod := range map[string]**lab.Pod{"shop/web": &s.web, "shop/db": &s.db} {
		if *pod, err = s.node.AddPod(name, lab.PodConfig{}); err != nil {
			t.Fatal(err)
		}
	}
	for proto, port := range map[string]uint16{"tcp": 80, "udp": 53, "sctp": 9999} {
		if err := s.db.Serve(proto, port); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{"iptables", "ip6tables"} { // connection tracking begins with the first rule that asks for it
		s.rule(command, "-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT")
		s.rule(command, "-A FORWARD -p tcp --dport 81 -j DROP")
	}
	err = s.node.Do(func() (err error) {
		s.reader, err = OpenEvents()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.reader.Close)
	return s
}

func (s *scene) rule(command, args string) {
	s.Helper()
	if out, err := s.node.Command(s.Context(), command, append([]string{"-w"}, strings.Fields(args)...)...).CombinedOutput(); err != nil {
		s.Fatalf("%s %s: %v: %s", command, args, err, out)
	}
}

// read returns what came since the last call.
func (s *scene) read() (all []Opened) {
	s.Helper()
	for {
		n := len(all)
		if err := s.reader.read(func(c []Opened) { all = append(all, c...) }); err != nil {
			s.Fatal(err)
		}
		if n == len(all) {
			return all
		}
	}
}

func (s *scene) probe(from *lab.Host, p lab.Packet, want lab.Verdict) {
	s.Helper()
	p.Timeout = await.Scaled(20 * time.Second)
	if want == lab.Dropped {
		p.Timeout = await.Scaled(500 * time.Millisecond)
	}
	if got, err := from.Probe(s.Context(), p); err != nil || got != want {
		s.Fatalf("%s %s/%d: %v, %v, want %v", p.To, p.Proto, p.Port, got, err, want)
	}
}

// TestS99_NewConnections: connections are reported as FORWARD saw them, once; those that were dropped are not.
func TestS99_NewConnections(t *testing.T) {
	s := newScene(t)
	virtual := netip.MustParseAddrPort("10.96.0.1:8080")
	err := s.node.AddService(t.Context(), lab.Service{Backend: lab.NFT, Proto: "tcp", Virtual: virtual, Pod: netip.AddrPortFrom(s.db.Addr4(), 80)})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		packet lab.Packet
		from   *lab.Host
		result lab.Verdict
		want   []Opened
	}{
		{"tcp", lab.Packet{Proto: "tcp", To: s.db.Addr4(), Port: 80}, s.web.Host, lab.Allowed,
			[]Opened{{s.web.Addr4(), s.db.Addr4(), unix.IPPROTO_TCP, 80}}},
		{"tcp, IPv6", lab.Packet{Proto: "tcp", To: s.db.Addr6(), Port: 80}, s.web.Host, lab.Allowed,
			[]Opened{{s.web.Addr6(), s.db.Addr6(), unix.IPPROTO_TCP, 80}}},
		{"refused", lab.Packet{Proto: "tcp", To: s.db.Addr4(), Port: 82}, s.web.Host, lab.Refused,
			[]Opened{{s.web.Addr4(), s.db.Addr4(), unix.IPPROTO_TCP, 82}}},
		{"dropped", lab.Packet{Proto: "tcp", To: s.db.Addr4(), Port: 81}, s.web.Host, lab.Dropped, nil},
		{"udp", lab.Packet{Proto: "udp", To: s.db.Addr4(), Port: 53}, s.web.Host, lab.Allowed,
			[]Opened{{s.web.Addr4(), s.db.Addr4(), unix.IPPROTO_UDP, 53}}},
		{"sctp", lab.Packet{Proto: "sctp", To: s.db.Addr4(), Port: 9999}, s.web.Host, lab.Allowed,
			[]Opened{{s.web.Addr4(), s.db.Addr4(), unix.IPPROTO_SCTP, 9999}}},
		{"ping", lab.Packet{Proto: "icmp", To: s.db.Addr4()}, s.web.Host, lab.Allowed,
			[]Opened{{s.web.Addr4(), s.db.Addr4(), unix.IPPROTO_ICMP, 0}}},
		{"through a Service", lab.Packet{Proto: "tcp", To: virtual.Addr(), Port: virtual.Port()}, s.web.Host, lab.Allowed,
			[]Opened{{s.web.Addr4(), s.db.Addr4(), unix.IPPROTO_TCP, 80}}},
		{"from the node", lab.Packet{Proto: "tcp", To: s.db.Addr4(), Port: 80}, s.node.Host, lab.Allowed,
			[]Opened{{s.node.Addr4(), s.db.Addr4(), unix.IPPROTO_TCP, 80}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.TB = t
			s.read()
			s.probe(test.from, test.packet, test.result)
			got := slices.DeleteFunc(s.read(), func(c Opened) bool { return c.Protocol == unix.IPPROTO_ICMPV6 })
			if test.name == "from the node" {
				got[0].Src = got[0].Src.Unmap()
				test.want[0].Src = got[0].Src // any address of the node's
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
	if s.reader.Lost() != 0 || s.reader.Resumed() != 0 || s.reader.Unsynced() != 0 {
		t.Errorf("lost %d, resumed %d, unsynced %d", s.reader.Lost(), s.reader.Resumed(), s.reader.Unsynced())
	}
}

// TestS99_PickUpsAreApart: a TCP connection that the node has forgotten is taken up by its next segment, and is no new
// one.
func TestS99_PickUpsAreApart(t *testing.T) {
	s := newScene(t)
	conn, err := s.web.DialContext(t.Context(), "tcp", netip.AddrPortFrom(s.db.Addr4(), 80).String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := s.read(); len(got) != 1 {
		t.Fatalf("%v", got)
	}
	if out, err := s.node.Command(t.Context(), "conntrack", "-F").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	await.That(t, "taking it up", func() bool {
		if got := s.read(); len(got) != 0 {
			t.Fatalf("%v", got)
		}
		return s.reader.Resumed() > 0
	})
	if got := s.read(); len(got) != 0 || s.reader.Resumed() != 1 {
		t.Errorf("%v, and %d were resumed", got, s.reader.Resumed())
	}
}

// TestReplied lists the connections that were answered, and no others.
func TestReplied(t *testing.T) {
	s := newScene(t)
	s.probe(s.web.Host, lab.Packet{Proto: "tcp", To: s.db.Addr4(), Port: 80}, lab.Allowed)
	s.probe(s.web.Host, lab.Packet{Proto: "udp", To: s.db.Addr6(), Port: 53}, lab.Allowed)
	s.probe(s.web.Host, lab.Packet{Proto: "tcp", To: s.db.Addr4(), Port: 82}, lab.Refused)
	flood(t, s.web.Host, netip.AddrPortFrom(s.db.Addr4(), 5000), 500)
	found := map[Opened]int{}
	if err := s.node.Do(func() error { return Replied(func(c Opened) { found[c]++ }) }); err != nil {
		t.Fatal(err)
	}
	for c, want := range map[Opened]int{{s.web.Addr4(), s.db.Addr4(), unix.IPPROTO_TCP, 80}: 1, {s.web.Addr6(), s.db.Addr6(), unix.IPPROTO_UDP, 53}: 1,
		{s.web.Addr4(), s.db.Addr4(), unix.IPPROTO_TCP, 82}: 0, {s.web.Addr4(), s.db.Addr4(), unix.IPPROTO_UDP, 5000}: 0} {
		if found[c] != want {
			t.Errorf("%v: %d, want %d", c, found[c], want)
		}
	}
}

// TestS99_LossesAreCountedExactly opens more connections than the queue holds while no process reads.
func TestS99_LossesAreCountedExactly(t *testing.T) {
	s := newScene(t)
	s.reader.Close()
	err := s.node.Do(func() (err error) {
		s.reader.subscription, err = subscribe(unix.NFNLGRP_CONNTRACK_NEW, 16<<10)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	const opened = 3000
	for range 2 { // the count goes on
		before := s.reader.Lost()
		flood(t, s.web.Host, netip.AddrPortFrom(s.db.Addr4(), 5000), opened)
		read := 0
		for _, c := range s.read() {
			if c.Port == 5000 {
				read++
			}
		}
		lost := s.reader.Lost() - before
		if read+int(lost) != opened || lost == 0 || read == 0 {
			t.Errorf("%d opened, %d read, %d lost", opened, read, lost)
		}
	}
}

// flood opens UDP connections, each from a port of its own.
func flood(t testing.TB, from *lab.Host, to netip.AddrPort, number int) {
	t.Helper()
	err := from.Do(func() error {
		for range number {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			port := int(nextPort.Add(1))
			if err := unix.Bind(fd, &unix.SockaddrInet4{Port: 1024 + port%64000}); err != nil {
				return fmt.Errorf("port %d: %w", port, err)
			}
			err = unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
			unix.Close(fd)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestBlindness is an error that says what to do.
func TestBlindness(t *testing.T) {
	path := t.TempDir() + "/nf_conntrack_events"
	for text, want := range map[string]string{"0\n": "nf_conntrack_events is 0", "1\n": "", "2\n": "", "-": "is not there"} {
		_ = os.Remove(path)
		if text != "-" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := blind(path); err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestRunEnds when events end, and when its context does.
func TestRunEnds(t *testing.T) {
	s := newScene(t)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan Opened, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- s.reader.Run(ctx, func(all []Opened) {
			for _, c := range all {
				got <- c
			}
		})
	}()
	s.probe(s.web.Host, lab.Packet{Proto: "tcp", To: s.db.Addr4(), Port: 80}, lab.Allowed)
	for c := range got {
		if c.Port == 80 {
			break
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.reader.blind = func() error { return os.ErrInvalid }
	if err := s.reader.Run(t.Context(), func([]Opened) {}); err != os.ErrInvalid {
		t.Error(err)
	}
}
