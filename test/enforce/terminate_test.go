package enforce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/test/lab"
)

// line is both ends of an open TCP connection.
type line struct{ client, server net.Conn }

// connect opens a connection to a port that is opened for it.
func (w *harness) connect(t *testing.T, from, to string, family int) line {
	t.Helper()
	var listener net.Listener
	err := w.hosts[to].Do(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(w.hosts[to].Addr(family), 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	client, err := w.hosts[from].DialContext(ctx, "tcp", listener.Addr().String())
	if err != nil {
		t.Fatalf("%s to %s: %v\n%s", from, to, err, w.state())
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
	})
	l := line{client, server}
	for _, ends := range [][2]net.Conn{{client, server}, {server, client}} {
		if got, err := l.say(ends[0], ends[1], converged); got != "hello" {
			t.Fatalf("%s to %s: got %q, %v\n%s", from, to, got, err, w.state())
		}
	}
	return l
}

// say sends something from one end, and returns what arrives at the other within a time, and the error of the first.
func (l line) say(from, to net.Conn, within time.Duration) (got string, err error) {
	end := time.Now().Add(within)
	_ = from.SetDeadline(end)
	_ = to.SetDeadline(end)
	if _, err = from.Write([]byte("hello")); err != nil {
		return "", err
	}
	answer := make(chan error, 1)
	go func() { // a reset is read
		_, err := from.Read(make([]byte, 1))
		answer <- err
	}()
	b := make([]byte, 5)
	n, _ := io.ReadFull(to, b)
	if n < len(b) {
		return string(b[:n]), <-answer
	}
	_ = from.SetReadDeadline(time.Now())
	<-answer
	return string(b), nil
}

// marked returns how many connections of a node, in both families, have all bits of a mark.
func marked(t *testing.T, n *lab.Node, bits uint32) (count int) {
	t.Helper()
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := n.Do(func() error {
			table, err := conntrack.Open(family)
			if err != nil {
				return err
			}
			defer table.Close()
			return table.Entries(func(_, _ netip.Addr) bool { return true }, func(e conntrack.Entry) {
				if e.Mark&bits == bits {
					count++
				}
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return count
}

// awaitMarked waits until as many connections of all nodes have all bits of a mark; 0 for no connection, others for at
// least so many.
func (w *harness) awaitMarked(t *testing.T, bits uint32, n int) {
	t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(20 * time.Millisecond) {
		got := 0
		for _, node := range w.Nodes() {
			got += marked(t, node, bits)
		}
		if n == 0 && got == 0 || n > 0 && got >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections have the bits %#x, not %d\n%s", got, bits, n, w.state())
		}
	}
}

var terminatedEnds = []struct{ name, from, to string }{
	{"on_the_same_node", "db", "web"}, {"from_another_node", "api", "web"}, {"from_outside", "out", "web"}, {"to_outside", "web", "out"},
	{"from_the_other_node", "n2", "web"},
}

// TestS96_WhatHasEndedStaysSo, whichever end speaks first, and when weave-npc was killed and started again meanwhile.
// It goes on when it is allowed again, unless an end got a reset.
func TestS96_WhatHasEndedStaysSo(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, base(), "--established=terminate")
		closed := w.objects(do(base(), policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`)))
		var lines []line
		var names []string
		for _, ends := range terminatedEnds {
			families(func(family int) {
				for _, who := range []string{"client", "server", "none"} {
					lines = append(lines, w.connect(t, ends.from, ends.to, family))
					names = append(names, fmt.Sprintf("%s IPv%d, %s first", ends.name, family, who))
				}
			})
		}
		free := w.connect(t, "db", "api", 4)
		w.apply(t, closed)
		w.awaitMarked(t, 0x2000, len(lines))
		silent := func(when string, i int, from, to net.Conn) {
			t.Helper()
			if got, err := lines[i].say(from, to, 150*time.Millisecond); got != "" {
				t.Errorf("%s, %s: %q arrived, %v", names[i], when, got, err)
			}
		}
		eachSpeaks := func(when string, first bool) {
			t.Helper()
			for i, l := range lines {
				from, to := l.client, l.server
				if (i%3 == 0) != first {
					from, to = to, from
				}
				if i%3 != 2 {
					silent(when, i, from, to)
				}
			}
		}
		eachSpeaks("at once", true)
		for _, d := range w.daemons {
			d.kill(t)
		}
		eachSpeaks("while weave-npc is down", false) // the other end, which was idle
		for _, d := range w.daemons {
			d.start(t)
		}
		for _, d := range w.daemons {
			d.awaitReady(t)
		}
		for i, l := range lines {
			if i%3 != 2 {
				silent("after a restart", i, l.client, l.server)
				silent("after a restart", i, l.server, l.client)
			}
		}
		w.apply(t, w.objects(base()))
		w.awaitMarked(t, 0x2000, 0)
		for i, l := range lines {
			if i%3 != 2 {
				continue
			}
			if got, err := l.say(l.client, l.server, timeout); got != "hello" {
				t.Errorf("%s, allowed again: got %q, %v\n%s", names[i], got, err, w.state())
			}
		}
		if got, err := free.say(free.client, free.server, converged); got != "hello" {
			t.Errorf("another connection: got %q, %v", got, err)
		}
		w.expect(t, wants{"tcp 80": ""})
	})
}

// TestS96_WhereACNIJumpsToTheChains connections end as well.
func TestS96_WhereACNIJumpsToTheChains(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := newHarness(t, backend, lab.Config{})
		w.jumpsOfCNI(t)
		w.begin(t, base(), "--forward-jump=false", "--established", "terminate")
		var lines []line
		for _, ends := range terminatedEnds {
			families(func(family int) { lines = append(lines, w.connect(t, ends.from, ends.to, family)) })
		}
		free := w.connect(t, "db", "api", 6)
		w.apply(t, w.objects(do(base(), policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`))))
		w.awaitMarked(t, 0x2000, len(lines))
		for i, l := range lines {
			for _, ends := range [][2]net.Conn{{l.server, l.client}, {l.client, l.server}} {
				if got, err := l.say(ends[0], ends[1], 150*time.Millisecond); got != "" {
					t.Errorf("%s IPv%d: %q arrived, %v", terminatedEnds[i/2].name, 4+2*(i%2), got, err)
				}
			}
		}
		if got, err := free.say(free.client, free.server, converged); got != "hello" {
			t.Errorf("another connection: got %q, %v", got, err)
		}
	})
}

// TestS97_BothEndsGetAReset, each when it sends something.
func TestS97_BothEndsGetAReset(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, base(), "--established=terminate")
		var lines []line
		for _, ends := range terminatedEnds {
			families(func(family int) { lines = append(lines, w.connect(t, ends.from, ends.to, family)) })
		}
		w.apply(t, w.objects(do(base(), policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`))))
		w.awaitMarked(t, 0x2000, len(lines))
		for i, l := range lines {
			for _, ends := range [][2]net.Conn{{l.client, l.server}, {l.server, l.client}} {
				if got, err := l.say(ends[0], ends[1], time.Second); got != "" || !errors.Is(err, unix.ECONNRESET) {
					t.Errorf("%s IPv%d: %q arrived, and the sender got: %v", terminatedEnds[i/2].name, 4+2*(i%2), got, err)
				}
			}
		}
	})
}

// TestS98_OtherBitsOfTheMarkStay when a connection is ended, and when it goes on.
func TestS98_OtherBitsOfTheMarkStay(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := newHarness(t, backend, lab.Config{})
		for _, n := range w.Nodes() {
			for _, iptables := range []string{"iptables-", "ip6tables-"} {
				run(t, n.Host, iptables+string(backend), "-w", "-t", "mangle", "-A", "PREROUTING", "-j", "CONNMARK", "--or-mark", "0x4100")
			}
		}
		w.begin(t, base(), "--established=terminate", "--terminate-mark=0x10000")
		var lines []line
		families(func(family int) { lines = append(lines, w.connect(t, "api", "web", family)) })
		w.apply(t, w.objects(do(base(), policy("shop/p", closeWeb))))
		w.awaitMarked(t, 0x14100, 2)
		for _, l := range lines {
			if got, _ := l.say(l.client, l.server, 150*time.Millisecond); got != "" {
				t.Errorf("%q arrived", got)
			}
		}
		w.apply(t, w.objects(base()))
		w.awaitMarked(t, 0x10000, 0)
		w.expect(t, wants{"tcp 80": ""})
		for _, n := range w.Nodes() {
			if marked(t, n, 0x4100) == 0 {
				t.Errorf("no connection of %s has the other bits", n)
			}
		}
	})
}

// TestS95_ToTheOwnNode a connection ends both ways when an Admin policy denies it.
func TestS95_ToTheOwnNode(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, base(), "--established=terminate")
		var lines []line
		families(func(family int) {
			lines = append(lines, w.connect(t, "web", "n1", family), w.connect(t, "web", "n1", family))
		})
		w.apply(t, w.objects(do(base(), clusterPolicy("a", admin("1", webAlone, egress("Deny", `{networks: [0.0.0.0/0, "::/0"]}`))))))
		w.awaitMarked(t, 0x2000, len(lines))
		for i, l := range lines {
			first, second := l.client, l.server
			if i%2 == 1 {
				first, second = second, first
			}
			for _, ends := range [][2]net.Conn{{first, second}, {second, first}} {
				if got, _ := l.say(ends[0], ends[1], 150*time.Millisecond); got != "" {
					t.Errorf("line %d: %q arrived\n%s", i, got, w.state())
				}
			}
		}
		w.apply(t, w.objects(base()))
		w.expect(t, wants{"tcp 80": "", "udp 53": ""})
	})
}

// TestS95_TakenUpInMidStream a connection ends only if both directions are denied: who opened it is not known.
func TestS95_TakenUpInMidStream(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, base(), "--established=terminate")
		l, free := w.connect(t, "api", "web", 4), w.connect(t, "api", "db", 4)
		for _, n := range w.Nodes() {
			if err := n.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }); err != nil {
				t.Fatal(err)
			}
		}
		talks := func(when string, l line, want string) {
			t.Helper()
			within := 150 * time.Millisecond
			if want != "" {
				within = converged
			}
			for _, ends := range [][2]net.Conn{{l.server, l.client}, {l.client, l.server}} {
				got, err := l.say(ends[0], ends[1], within)
				for end := time.Now().Add(converged); want == "" && got != "" && time.Now().Before(end); { // it ends a moment after the change
					got, err = l.say(ends[0], ends[1], within)
				}
				if got != want {
					t.Errorf("%s: got %q, want %q, %v\n%s", when, got, want, err, w.state())
				}
			}
		}
		talks("taken up", l, "hello")
		talks("taken up", free, "hello")
		w.apply(t, w.objects(do(base(), policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`))))
		w.expect(t, wants{"tcp 80": "-*>web"})
		talks("one direction is denied", l, "hello")
		w.apply(t, w.objects(do(base(), policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`))))
		talks("both are denied", l, "")
		talks("another one", free, "hello")
	})
}

// TestS95_KeepAfterTerminate and the removal of weave-npc have connections go on that were ended.
func TestS95_KeepAfterTerminate(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, how := range []string{"keep", "cleanup", "another bit"} {
			t.Run(strings.ReplaceAll(how, " ", "_"), func(t *testing.T) {
				w := start(t, backend, base(), "--established=terminate")
				l := w.connect(t, "api", "web", 4)
				w.apply(t, w.objects(do(base(), policy("shop/p", closeWeb))))
				w.awaitMarked(t, 0x2000, 1)
				for _, d := range w.daemons {
					d.kill(t)
					switch how {
					case "keep":
						d.args = append(d.args, "--established=keep")
						d.start(t)
					case "cleanup":
						if _, stderr, status := execute(t, d.node, nil, "cleanup"); status != 0 {
							t.Fatalf("cleanup ends with %d\n%s", status, stderr)
						}
						d.start(t)
					default:
						d.args = append(d.args, "--terminate-mark=0x40000")
						d.start(t)
					}
					d.awaitReady(t)
				}
				got, err := l.say(l.client, l.server, 300*time.Millisecond)
				if want := map[string]string{"keep": "hello"}[how]; got != want {
					t.Errorf("got %q, %v, want %q\n%s", got, err, want, w.state())
				}
			})
		}
	})
}

// TestS95_ABitThatAnotherProgramUses is an error at the start.
func TestS95_ABitThatAnotherProgramUses(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := newHarness(t, backend, lab.Config{})
		l := w.connect(t, "api", "web", 4)
		run(t, w.Node("node1").Host, "iptables-"+string(backend), "-t", "mangle", "-A", "FORWARD", "-j", "CONNMARK", "--set-mark", "0x2000")
		if got, err := l.say(l.client, l.server, converged); got != "hello" {
			t.Errorf("got %q, %v", got, err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/none.yaml", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, stderr, status := execute(t, w.Node("node1"), nil, "--manifests", dir, "--node-name=node1", "--metrics-addr=", "--established=terminate")
		if status == 0 || !strings.Contains(stderr, "--terminate-mark: 1 connections have the bit 0x2000 of their mark already") {
			t.Errorf("it ends with %d: %s", status, stderr)
		}
		if got, err := l.say(l.client, l.server, converged); got != "hello" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}
