package connections

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// lateLine is a connection that has ended. One of its ends says nothing for long.
type lateLine struct {
	name string
	e2e.Line
	udp bool
	// serverLate is set if the server is the end that says nothing. The other end speaks at once if reported is set.
	serverLate, reported bool
	after                time.Duration
}

// TestS96_AnEndThatSpeaksLate is not heard: after 14 s, when the kernel forgets what a reset has closed, and after 6
// minutes, when it forgets what is not acknowledged. The pods may open connections to those that opened these, so that
// whatever is forgotten would be taken up in reverse. Of UDP what is sent after 6 minutes is a new connection: the
// server may open it, and the client may not.
//
// NoPod waits for an hour, and the kernel has no clock that a test could move: it counts ticks since it was booted.
// Instead the entry's own end is read from the kernel. It is fixed, and all of what an idle open connection would have,
// 5 days, less the time that passed. Until then the entry is what packets meet, at an hour as after 6 minutes.
func TestS96_AnEndThatSpeaksLate(t *testing.T) {
	if os.Getenv(longVariable) == "" {
		t.Skip("takes 6.5 minutes: runs only with " + longVariable + "=1 (make fuzz-terminate)")
	}
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Base(), "--established=terminate")
		lines := lateLines(t, w)
		tcp := 0
		for _, l := range lines {
			if !l.udp {
				tcp++
			}
		}
		w.Apply(t, w.Objects(e2e.Do(e2e.Base(), e2e.Policy("shop/p",
			`{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}`))))
		ended := time.Now()
		awaitMarked(t, w, 0x2000, len(lines))
		for _, l := range lines {
			if l.reported {
				l.heard(t, !l.serverLate, "")
			}
		}
		for _, after := range []time.Duration{14 * time.Second, 6 * time.Minute} {
			time.Sleep(time.Until(ended.Add(after)))
			expectPinned(t, w, tcp, ended)
			for _, l := range lines {
				switch {
				case l.after != after:
				case l.udp && l.serverLate && after > 3*time.Minute:
					l.heard(t, true, "hello")
				default:
					l.heard(t, l.serverLate, "")
				}
			}
		}
		expectPinned(t, w, tcp, ended)
		for _, l := range lines { // the other ends, too
			if !l.udp && !l.reported {
				l.heard(t, !l.serverLate, "")
			}
		}
	})
}

// lateLines opens connections to web.
func lateLines(t *testing.T, w *e2e.Cluster) (lines []lateLine) {
	t.Helper()
	for _, from := range []string{"db", "api", "out", "n2"} {
		e2e.EachFamily(func(family int) {
			for _, after := range []time.Duration{14 * time.Second, 6 * time.Minute} {
				for _, serverLate := range []bool{true, false} {
					for _, reported := range []bool{true, false} {
						l := lateLine{Line: connect(t, w, from, "web", family), serverLate: serverLate,
							reported: reported, after: after}
						lines = append(lines, l.called(from, family))
					}
					l := lateLine{Line: connectUDP(t, w, from, "web", family), udp: true, serverLate: serverLate,
						after: after}
					lines = append(lines, l.called(from, family))
				}
			}
		})
	}
	return lines
}

// called gives the connection a name.
func (l lateLine) called(from string, family int) lateLine {
	l.name = fmt.Sprintf("%s, IPv%d, UDP: %t, the server speaks late: %t, the other at once: %t, %s", from, family,
		l.udp, l.serverLate, l.reported, l.after)
	return l
}

// heard has an end say something, and expects what arrives. An end of TCP that is not heard gets a reset.
func (l lateLine) heard(t *testing.T, server bool, want string) {
	t.Helper()
	from, to := l.Client, l.Server
	if server {
		from, to = to, from
	}
	within := e2e.Shortly
	if want != "" {
		within = e2e.Converged
	}
	got, err := l.Say(from, to, within)
	if got != want || want == "" && !l.udp && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%s: the server (%t) says something, and %q arrives: %v", l.name, server, got, err)
	}
}

// expectPinned expects that so many TCP connections stay in the table of web's node for as long as ones that have been
// idle since they ended.
func expectPinned(t *testing.T, w *e2e.Cluster, count int, ended time.Time) {
	t.Helper()
	n, seen := w.Node("node1"), 0
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		if err := n.Do(func() error {
			text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established")
			if err != nil {
				return err
			}
			idle, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				return err
			}
			flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
			for _, f := range flows {
				if f.Mark&0x2000 == 0 || f.Forward.Protocol != unix.IPPROTO_TCP {
					continue
				}
				seen++
				left, want := time.Duration(f.TimeOut)*time.Second, time.Duration(idle)*time.Second-time.Since(ended)
				if left < want-time.Minute || left > want+5*time.Second || left < 2*time.Hour {
					t.Errorf("%s is forgotten in %s, not in %s", f, left, want)
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if seen != count {
		t.Errorf("%d connections are ended, not %d", seen, count)
	}
}

// connectUDP opens a connection of UDP from a host to a port that is opened for it.
func connectUDP(t *testing.T, w *e2e.Cluster, from, to string, family int) e2e.Line {
	t.Helper()
	var server net.PacketConn
	err := w.Hosts[to].Do(func() (err error) {
		server, err = net.ListenPacket("udp", netip.AddrPortFrom(w.Hosts[to].Addr(family), 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Timeout)
	defer cancel()
	client, err := w.Hosts[from].DialContext(ctx, "udp", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	l := e2e.Line{Client: client, Server: answering{server.(*net.UDPConn), client.LocalAddr()}}
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
	})
	for _, ends := range [][2]net.Conn{{client, l.Server}, {l.Server, client}} {
		if got, err := l.Say(ends[0], ends[1], e2e.Converged); got != "hello" {
			t.Fatalf("%s to %s: got %q, %v\n%s", from, to, got, err, w.State())
		}
	}
	return l
}

// answering is a server of UDP with one client.
type answering struct {
	*net.UDPConn
	client net.Addr
}

// Write implements net.Conn.
func (a answering) Write(b []byte) (int, error) { return a.WriteTo(b, a.client) }
