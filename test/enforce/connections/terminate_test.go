package connections

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// connect opens a connection to a port that is opened for it.
func connect(t *testing.T, w *e2e.Cluster, from, to string, family int) e2e.Line {
	t.Helper()
	var listener net.Listener
	err := w.Hosts[to].Do(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(w.Hosts[to].Addr(family), 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Timeout)
	defer cancel()
	client, err := w.Hosts[from].DialContext(ctx, "tcp", listener.Addr().String())
	if err != nil {
		t.Fatalf("%s to %s: %v\n%s", from, to, err, w.State())
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
	})
	l := e2e.Line{Client: client, Server: server}
	for _, end := range []net.Conn{client, server} {
		if err := end.(*net.TCPConn).SetKeepAlive(false); err != nil { // a probe counts as sent by its end
			t.Fatal(err)
		}
	}
	for _, ends := range [][2]net.Conn{{client, server}, {server, client}} {
		if got, err := l.Say(ends[0], ends[1], e2e.Converged); got != "hello" {
			t.Fatalf("%s to %s: got %q, %v\n%s", from, to, got, err, w.State())
		}
	}
	l.AwaitAcknowledged(t)
	return l
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
func awaitMarked(t *testing.T, w *e2e.Cluster, bits uint32, n int) {
	t.Helper()
	for deadline := time.Now().Add(e2e.Timeout); ; time.Sleep(20 * time.Millisecond) {
		got := 0
		for _, node := range w.Nodes() {
			got += marked(t, node, bits)
		}
		if n == 0 && got == 0 || n > 0 && got >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections have the bits %#x, not %d\n%s", got, bits, n, w.State())
		}
	}
}

var terminatedEnds = []struct{ name, from, to string }{
	{"on_the_same_node", "db", "web"}, {"from_another_node", "api", "web"}, {"from_outside", "out", "web"},
	{"to_outside", "web", "out"},
	{"from_the_other_node", "n2", "web"},
}

// TestS96_WhatHasEndedStaysSo, whichever end speaks first, and when weave-npc was killed and started again meanwhile.
// It goes on when it is allowed again, unless an end got a reset.
func TestS96_WhatHasEndedStaysSo(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Base(), "--established=terminate")
		closed := w.Objects(e2e.Do(e2e.Base(), e2e.Policy("shop/p",
			`{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`)))
		var lines []e2e.Line
		var names []string
		for _, ends := range terminatedEnds {
			e2e.EachFamily(func(family int) {
				for _, who := range []string{"client", "server", "none"} {
					lines = append(lines, connect(t, w, ends.from, ends.to, family))
					names = append(names, fmt.Sprintf("%s IPv%d, %s first", ends.name, family, who))
				}
			})
		}
		free := connect(t, w, "db", "api", 4)
		w.Apply(t, closed)
		awaitMarked(t, w, 0x2000, len(lines))
		silent := func(when string, i int, from, to net.Conn) {
			t.Helper()
			if got, err := lines[i].Say(from, to, await.Scaled(150*time.Millisecond)); got != "" {
				t.Errorf("%s, %s: %q arrived, %v", names[i], when, got, err)
			}
		}
		eachSpeaks := func(when string, first bool) {
			t.Helper()
			for i, l := range lines {
				from, to := l.Client, l.Server
				if (i%3 == 0) != first {
					from, to = to, from
				}
				if i%3 != 2 {
					silent(when, i, from, to)
				}
			}
		}
		eachSpeaks("at once", true)
		for _, d := range w.Daemons {
			d.Kill(t)
		}
		eachSpeaks("while weave-npc is down", false) // the other end, which was idle
		for _, d := range w.Daemons {
			d.Start(t)
		}
		for _, d := range w.Daemons {
			d.AwaitReady(t)
		}
		for i, l := range lines {
			if i%3 != 2 {
				silent("after a restart", i, l.Client, l.Server)
				silent("after a restart", i, l.Server, l.Client)
			}
		}
		w.Apply(t, w.Objects(e2e.Base()))
		awaitMarked(t, w, 0x2000, 0)
		for i, l := range lines {
			if i%3 != 2 {
				continue
			}
			if got, err := l.Say(l.Client, l.Server, e2e.Timeout); got != "hello" {
				t.Errorf("%s, allowed again: got %q, %v\n%s", names[i], got, err, w.State())
			}
		}
		if got, err := free.Say(free.Client, free.Server, e2e.Converged); got != "hello" {
			t.Errorf("another connection: got %q, %v", got, err)
		}
		w.Expect(t, e2e.Wants{"tcp 80": ""})
	})
}

// TestS96_WhereACNIJumpsToTheChains connections end as well.
func TestS96_WhereACNIJumpsToTheChains(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		w.JumpsOfCNI(t)
		w.Begin(t, e2e.Base(), "--forward-jump=false", "--established", "terminate")
		var lines []e2e.Line
		for _, ends := range terminatedEnds {
			e2e.EachFamily(func(family int) { lines = append(lines, connect(t, w, ends.from, ends.to, family)) })
		}
		free := connect(t, w, "db", "api", 6)
		w.Apply(t, w.Objects(e2e.Do(e2e.Base(), e2e.Policy("shop/p",
			`{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`))))
		awaitMarked(t, w, 0x2000, len(lines))
		for i, l := range lines {
			for _, ends := range [][2]net.Conn{{l.Server, l.Client}, {l.Client, l.Server}} {
				if got, err := l.Say(ends[0], ends[1], await.Scaled(150*time.Millisecond)); got != "" {
					t.Errorf("%s IPv%d: %q arrived, %v", terminatedEnds[i/2].name, 4+2*(i%2), got, err)
				}
			}
		}
		if got, err := free.Say(free.Client, free.Server, e2e.Converged); got != "hello" {
			t.Errorf("another connection: got %q, %v", got, err)
		}
	})
}

// TestS97_BothEndsGetAReset, each when it sends something.
func TestS97_BothEndsGetAReset(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Base(), "--established=terminate")
		var lines []e2e.Line
		for _, ends := range terminatedEnds {
			e2e.EachFamily(func(family int) { lines = append(lines, connect(t, w, ends.from, ends.to, family)) })
		}
		w.Apply(t, w.Objects(e2e.Do(e2e.Base(), e2e.Policy("shop/p",
			`{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`))))
		awaitMarked(t, w, 0x2000, len(lines))
		for i, l := range lines {
			for _, ends := range [][2]net.Conn{{l.Client, l.Server}, {l.Server, l.Client}} {
				if err := awaitReset(ends[0]); err != nil {
					t.Errorf("%s IPv%d: the sender got: %v", terminatedEnds[i/2].name, 4+2*(i%2), err)
				}
				_ = ends[1].SetReadDeadline(time.Now().Add(e2e.Shortly))
				if n, _ := ends[1].Read(make([]byte, 1)); n > 0 {
					t.Errorf("%s IPv%d: what was sent arrived", terminatedEnds[i/2].name, 4+2*(i%2))
				}
			}
		}
	})
}

// awaitReset sends something, and returns nil when the sender has got a reset.
func awaitReset(from net.Conn) error {
	if err := from.SetDeadline(time.Now().Add(e2e.Converged)); err != nil {
		return err
	}
	_, err := from.Write([]byte("hello"))
	if err == nil {
		_, err = from.Read(make([]byte, 1))
	}
	if errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) { // EPIPE: a read before has returned the reset
		return nil
	}
	return fmt.Errorf("no reset: %w", err)
}

// TestS98_OtherBitsOfTheMarkStay when a connection is ended, and when it goes on.
func TestS98_OtherBitsOfTheMarkStay(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		for _, n := range w.Nodes() {
			for _, iptables := range []string{"iptables-", "ip6tables-"} {
				e2e.Run(t, n.Host, iptables+string(backend), "-w", "-t", "mangle", "-A", "PREROUTING", "-j",
					"CONNMARK", "--or-mark", "0x4100")
			}
		}
		w.Begin(t, e2e.Base(), "--established=terminate", "--terminate-mark=0x10000")
		var lines []e2e.Line
		e2e.EachFamily(func(family int) { lines = append(lines, connect(t, w, "api", "web", family)) })
		w.Apply(t, w.Objects(e2e.Do(e2e.Base(), e2e.Policy("shop/p", e2e.CloseWeb))))
		awaitMarked(t, w, 0x14100, 2)
		for _, l := range lines {
			if got, _ := l.Say(l.Client, l.Server, await.Scaled(150*time.Millisecond)); got != "" {
				t.Errorf("%q arrived", got)
			}
		}
		w.Apply(t, w.Objects(e2e.Base()))
		awaitMarked(t, w, 0x10000, 0)
		w.Expect(t, e2e.Wants{"tcp 80": ""})
		for _, n := range w.Nodes() {
			if marked(t, n, 0x4100) == 0 {
				t.Errorf("no connection of %s has the other bits", n)
			}
		}
	})
}

// TestS95_ToTheOwnNode a connection ends both ways when an Admin policy denies it.
func TestS95_ToTheOwnNode(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Base(), "--established=terminate")
		var lines []e2e.Line
		e2e.EachFamily(func(family int) {
			lines = append(lines, connect(t, w, "web", "n1", family), connect(t, w, "web", "n1", family))
		})
		w.Apply(t, w.Objects(e2e.Do(e2e.Base(), e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone,
			e2e.Egress("Deny", `{networks: [0.0.0.0/0, "::/0"]}`))))))
		awaitMarked(t, w, 0x2000, len(lines))
		for i, l := range lines {
			first, second := l.Client, l.Server
			if i%2 == 1 {
				first, second = second, first
			}
			for _, ends := range [][2]net.Conn{{first, second}, {second, first}} {
				if got, _ := l.Say(ends[0], ends[1], await.Scaled(150*time.Millisecond)); got != "" {
					t.Errorf("line %d: %q arrived\n%s", i, got, w.State())
				}
			}
		}
		w.Apply(t, w.Objects(e2e.Base()))
		w.Expect(t, e2e.Wants{"tcp 80": "", "udp 53": ""})
	})
}

// TestS95_TakenUpInMidStream a connection ends only if both directions are denied: who opened it is not known.
func TestS95_TakenUpInMidStream(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Base(), "--established=terminate")
		l, free := connect(t, w, "api", "web", 4), connect(t, w, "api", "db", 4)
		for _, n := range w.Nodes() {
			if err := n.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }); err != nil {
				t.Fatal(err)
			}
		}
		talks := func(when string, l e2e.Line, want string) {
			t.Helper()
			within := await.Scaled(150 * time.Millisecond)
			if want != "" {
				within = e2e.Converged
			}
			for _, ends := range [][2]net.Conn{{l.Server, l.Client}, {l.Client, l.Server}} {
				got, err := l.Say(ends[0], ends[1], within)
				for end := time.Now().Add(e2e.Converged); want == "" && got != "" && time.Now().Before(end); { // it ends a moment after the change
					got, err = l.Say(ends[0], ends[1], within)
				}
				if got != want {
					t.Errorf("%s: got %q, want %q, %v\n%s", when, got, want, err, w.State())
				}
			}
		}
		talks("taken up", l, "hello")
		talks("taken up", free, "hello")
		w.Apply(t, w.Objects(e2e.Do(e2e.Base(), e2e.Policy("shop/p",
			`{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`))))
		w.Expect(t, e2e.Wants{"tcp 80": "-*>web"})
		talks("one direction is denied", l, "hello")
		w.Apply(t, w.Objects(e2e.Do(e2e.Base(), e2e.Policy("shop/p",
			`{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`))))
		talks("both are denied", l, "")
		talks("another one", free, "hello")
	})
}

// TestS95_KeepAfterTerminate and the removal of weave-npc have connections go on that were ended.
func TestS95_KeepAfterTerminate(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, how := range []string{"keep", "cleanup", "another bit"} {
			t.Run(strings.ReplaceAll(how, " ", "_"), func(t *testing.T) {
				w := e2e.Start(t, backend, e2e.Base(), "--established=terminate")
				l := connect(t, w, "api", "web", 4)
				w.Apply(t, w.Objects(e2e.Do(e2e.Base(), e2e.Policy("shop/p", e2e.CloseWeb))))
				awaitMarked(t, w, 0x2000, 1)
				for _, d := range w.Daemons {
					d.Kill(t)
					switch how {
					case "keep":
						d.Args = append(d.Args, "--established=keep")
						d.Start(t)
					case "cleanup":
						if _, stderr, status := e2e.Execute(t, d.Node, nil, "cleanup"); status != 0 {
							t.Fatalf("cleanup ends with %d\n%s", status, stderr)
						}
						d.Start(t)
					default:
						d.Args = append(d.Args, "--terminate-mark=0x40000")
						d.Start(t)
					}
					d.AwaitReady(t)
				}
				want, within := map[string]string{"keep": "hello"}[how], await.Scaled(300*time.Millisecond)
				if want != "" {
					within = e2e.Converged
				}
				got, err := l.Say(l.Client, l.Server, within)
				if got != want {
					t.Errorf("got %q, %v, want %q\n%s", got, err, want, w.State())
				}
			})
		}
	})
}

// TestS95_ABitThatAnotherProgramUses is an error at the start.
func TestS95_ABitThatAnotherProgramUses(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		l := connect(t, w, "api", "web", 4)
		e2e.Run(t, w.Node("node1").Host, "iptables-"+string(backend), "-t", "mangle", "-A", "FORWARD", "-j",
			"CONNMARK", "--set-mark", "0x2000")
		if got, err := l.Say(l.Client, l.Server, e2e.Converged); got != "hello" {
			t.Errorf("got %q, %v", got, err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/none.yaml", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, stderr, status := e2e.Execute(t, w.Node("node1"), nil, "--manifests", dir, "--node-name=node1",
			"--metrics-addr=", "--established=terminate")
		if status == 0 || !strings.Contains(stderr,
			"--terminate-mark: 1 connections have the bit 0x2000 of their mark already") {
			t.Errorf("it ends with %d: %s", status, stderr)
		}
		if got, err := l.Say(l.Client, l.Server, e2e.Converged); got != "hello" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}
