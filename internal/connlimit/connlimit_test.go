package connlimit

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Main(m)) }

// serve serves on loopback, within bounds. Requests for /slow are answered when the channel is closed.
func serve(t *testing.T, state func(net.Conn, http.ConnState)) (addr string, slow chan struct{}) {
	t.Helper()
	slow = make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-slow
		}
	}))
	s.Config.ConnState = state
	s.Start()
	t.Cleanup(s.CloseClientConnections)
	return s.Listener.Addr().String(), slow
}

// dial opens a connection from an address of this host.
func dial(t *testing.T, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
	c, err := d.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// send sends a request.
func send(t *testing.T, c net.Conn, path string) {
	t.Helper()
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: node\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
}

func clientOf(c net.Conn) netip.Addr {
	client, _ := Client(c.RemoteAddr(), c.LocalAddr())
	return client
}

func isOwn(c net.Conn) bool {
	_, own := Client(c.RemoteAddr(), c.LocalAddr())
	return own
}

// open reports whether a connection has not been closed after a while.
func open(t *testing.T, c net.Conn) bool {
	t.Helper()
	return !ends(t, c, 200*time.Millisecond)
}

// closed reports whether a connection is closed, and waits for that as long as a busy machine needs.
func closed(t *testing.T, c net.Conn) bool {
	t.Helper()
	return ends(t, c, await.Scaled(time.Minute))
}

func ends(t *testing.T, c net.Conn, within time.Duration) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Read(make([]byte, 1))
	return err != nil && !os.IsTimeout(err)
}

// know waits until a limit knows some connections, and requests on some of them.
func (l *Limit[K]) know(t *testing.T, connections, requests int) {
	t.Helper()
	await.That(t, fmt.Sprintf("%d connections, %d with a request", connections, requests), func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		busy := 0
		for _, e := range l.entries {
			if e.busy {
				busy++
			}
		}
		return len(l.entries) == connections && busy == requests
	})
}

// TestS76_AClientsConnectionsCostItself: who opens too many loses its own, those without a request first, oldest first.
func TestS76_AClientsConnectionsCostItself(t *testing.T) {
	l := New[netip.Addr](100, 3)
	addr, slow := serve(t, func(c net.Conn, s http.ConnState) { l.Track(c, clientOf(c), s) })
	defer close(slow)
	other := dial(t, "127.0.0.3", addr)
	busy := dial(t, "127.0.0.2", addr)
	send(t, busy, "/slow")
	l.know(t, 2, 1)
	var idle [4]net.Conn
	for i := range idle {
		idle[i] = dial(t, "127.0.0.2", addr)
	}
	for i := range 2 {
		if !closed(t, idle[i]) {
			t.Errorf("connection %d is open", i)
		}
	}
	for i := 2; i < 4; i++ {
		if !open(t, idle[i]) {
			t.Errorf("connection %d is closed", i)
		}
	}
	if !open(t, busy) || !open(t, other) {
		t.Error("a connection with a request, or one of another client, was closed")
	}
}

// TestS76_TheClientWithMostMakesRoom when there are too many connections in all, even if requests are being answered on
// all of its own.
func TestS76_TheClientWithMostMakesRoom(t *testing.T) {
	for _, asking := range []bool{false, true} {
		l := New[netip.Addr](4, 4)
		addr, slow := serve(t, func(c net.Conn, s http.ConnState) { l.Track(c, clientOf(c), s) })
		first := dial(t, "127.0.0.3", addr)
		var many [3]net.Conn
		for i := range many {
			if many[i] = dial(t, "127.0.0.2", addr); asking {
				send(t, many[i], "/slow")
			}
		}
		requests := 0
		if asking {
			requests = len(many)
		}
		l.know(t, 1+len(many), requests)
		later := dial(t, "127.0.0.4", addr)
		if !closed(t, many[0]) || !open(t, later) || !open(t, first) || !open(t, many[1]) {
			t.Errorf("asking %t: another connection than the oldest of the client with most was closed", asking)
		}
		close(slow)
	}
}

// TestS76_ALimitForgets what is closed.
func TestS76_ALimitForgets(t *testing.T) {
	l := New[netip.Addr](20, 20) // the server may learn of a close after the next connection
	addr, _ := serve(t, func(c net.Conn, s http.ConnState) { l.Track(c, clientOf(c), s) })
	for range 20 {
		c := dial(t, "127.0.0.2", addr)
		send(t, c, "/")
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	l.know(t, 0, 0)
	if n := len(l.clients); n > 0 {
		t.Errorf("%d clients have no connection", n)
	}
}

// TestS76_NoPodClosesTheNodesConnections: those of the node itself, of both families, are counted apart.
func TestS76_NoPodClosesTheNodesConnections(t *testing.T) {
	addr, _ := serve(t, Node().Track)
	own := dial(t, "127.0.0.1", addr)
	for i := range nodeAll {
		dial(t, netip.AddrFrom4([4]byte{127, 0, 1, byte(i)}).String(), addr)
	}
	if !open(t, own) {
		t.Error("the node's connection was closed")
	}
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := dial(t, "::1", l.Addr().String())
	if !isOwn(c) || isOwn(dial(t, "127.0.0.2", addr)) {
		t.Error("the node's own connections are not known")
	}
}
