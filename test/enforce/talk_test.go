package enforce

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

const (
	// shortly is how long a packet is waited for that must not arrive.
	shortly = 100 * time.Millisecond
	// backendPort is the TCP port behind Services, and otherPort another one that hosts of talkers serve.
	backendPort, otherPort = 81, 79
)

// talk is an open connection: of TCP with both ends, of UDP to a server that answers each datagram.
type talk struct {
	line
	from, to *lab.Host
	family   int
	proto    string
	port     uint16 // of the server
	local    uint16 // of the client
	service  bool   // the client knows a Service's address
	// nodes are the nodes of local pods that evaluate it. takenUp are those that took it up in mid-stream: they do not
	// know its client.
	nodes   []*lab.Node
	takenUp map[*lab.Node]bool
	// endedOn are the nodes that have ended it, as long as no end has said anything since.
	endedOn []*lab.Node
}

// String names the connection.
func (c *talk) String() string {
	text := fmt.Sprintf("%s port %d to %s, %s %d, IPv%d", c.from.Name(), c.local, c.to.Name(), c.proto, c.port, c.family)
	if c.service {
		text += ", through a Service"
	}
	for n := range c.takenUp {
		text += ", taken up on " + n.Name()
	}
	return text
}

// packet opens the connection.
func (c *talk) packet() refmodel.Packet {
	p := packetOf(c.from.Addr(c.family), c.to.Addr(c.family), c.proto, c.port)
	p.ThroughService = c.from == c.to
	return p
}

// reverse would open it from the other end.
func (c *talk) reverse() refmodel.Packet {
	return packetOf(c.to.Addr(c.family), c.from.Addr(c.family), c.proto, c.local)
}

// deniedOn returns the nodes that deny the connection. A node that does not know the client denies it if neither end
// may open it.
func (c *talk) deniedOn(now refmodel.State) (nodes []*lab.Node) {
	for _, n := range c.nodes {
		allowed := now.Allowed(n.Name(), c.packet()) || c.takenUp[n] && now.Allowed(n.Name(), c.reverse())
		if !allowed {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// becomes returns what is wrong with the connection when both ends say something, now that nodes deny it. It ends a
// moment after the change, or has ended if one of them denied it before.
func (c *talk) becomes(deniedOn []*lab.Node, serverFirst bool) (why string) {
	allowed := len(deniedOn) == 0
	ended := slices.ContainsFunc(c.endedOn, func(n *lab.Node) bool { return slices.Contains(deniedOn, n) })
	for end := time.Now().Add(converged); ; {
		if why = c.once(allowed, serverFirst); why == "" || allowed || ended || time.Now().After(end) {
			return why
		}
	}
}

// once has both ends say something, or the client of UDP, and returns what is wrong with the result.
func (c *talk) once(allowed, serverFirst bool) string {
	if c.proto == "udp" {
		return c.ask(allowed)
	}
	wait := shortly
	if allowed {
		wait = converged
	}
	ends := [][2]net.Conn{{c.client, c.server}, {c.server, c.client}}
	if serverFirst {
		ends[0], ends[1] = ends[1], ends[0]
	}
	for i, e := range ends {
		if got, err := c.say(e[0], e[1], wait); got != map[bool]string{true: "hello"}[allowed] {
			return fmt.Sprintf("end %d (server first: %t) said something, and %q arrived: %v", i+1, serverFirst, got, err)
		}
	}
	return ""
}

// ask sends a datagram, and returns what is wrong with the result.
func (c *talk) ask(allowed bool) string {
	wait := shortly
	if allowed {
		wait = converged
	}
	if err := c.client.SetDeadline(time.Now().Add(wait)); err != nil {
		return err.Error()
	}
	_, err := c.client.Write([]byte("hello"))
	if err == nil {
		_, err = c.client.Read(make([]byte, 1500))
	}
	switch {
	case allowed && err != nil:
		return err.Error()
	case !allowed && err == nil:
		return "it was answered"
	}
	return ""
}

// entries returns the connection's entries on a node, also reversed ones.
func (c *talk) entries(n *lab.Node) (found []conntrack.Entry, err error) {
	family, protocol := uint8(unix.AF_INET), uint8(unix.IPPROTO_TCP)
	if c.family == 6 {
		family = unix.AF_INET6
	}
	if c.proto == "udp" {
		protocol = unix.IPPROTO_UDP
	}
	from, to := c.from.Addr(c.family), c.to.Addr(c.family)
	return found, n.Do(func() error {
		table, err := conntrack.Open(family)
		if err != nil {
			return err
		}
		defer table.Close()
		return table.Entries(func(a, b netip.Addr) bool { return a == from && b == to || a == to && b == from }, func(e conntrack.Entry) {
			if e.Protocol == protocol && (e.Source == from && e.SourcePort == c.local || e.Destination == from && e.Port == c.local) {
				found = append(found, e)
			}
		})
	})
}

// close closes both ends.
func (c *talk) close() {
	for _, end := range []net.Conn{c.client, c.server} {
		if end != nil {
			_ = end.Close()
		}
	}
}

// talkers is a harness whose hosts serve more ports of TCP, and return both ends of connections to these.
type talkers struct {
	*harness
	accepted map[*lab.Host]chan net.Conn
}

// newTalkers has all hosts of a harness listen.
func newTalkers(t *testing.T, w *harness) *talkers {
	t.Helper()
	ts := &talkers{harness: w, accepted: map[*lab.Host]chan net.Conn{}}
	for _, h := range w.hosts {
		ts.accepted[h] = make(chan net.Conn, 1)
		for _, port := range []int{backendPort, otherPort} {
			ts.listen(t, h, port)
		}
	}
	return ts
}

func (ts *talkers) listen(t *testing.T, h *lab.Host, port int) {
	t.Helper()
	var listener net.Listener
	config := net.ListenConfig{KeepAlive: -1}
	config.SetMultipathTCP(false)
	if err := h.Do(func() (err error) {
		listener, err = config.Listen(t.Context(), "tcp", fmt.Sprintf(":%d", port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	accepted := ts.accepted[h] // the map is not complete yet
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			accepted <- conn
		}
	}()
}

// begin opens a connection to an address that leads to its server, from a port that was not in use for long: an ended
// connection keeps its own.
func (ts *talkers) begin(t *testing.T, c *talk, address netip.AddrPort) {
	t.Helper()
	c.local, c.takenUp = c.from.FreshPort(), map[*lab.Node]bool{}
	dialer := net.Dialer{KeepAlive: -1, LocalAddr: &net.TCPAddr{Port: int(c.local)}}
	if c.proto == "udp" {
		dialer.LocalAddr = &net.UDPAddr{Port: int(c.local)}
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	err := c.from.Do(func() (err error) {
		c.client, err = dialer.DialContext(ctx, c.proto, address.String())
		return err
	})
	if err == nil && c.proto == "tcp" {
		select {
		case c.server = <-ts.accepted[c.to]:
		case <-ctx.Done():
			err = syscall.ETIMEDOUT
		}
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", c, err, ts.state())
	}
	t.Cleanup(c.close)
	for _, h := range []*lab.Host{c.from, c.to} {
		if n := ts.nodeOf(h); n != nil && !slices.Contains(c.nodes, n) {
			c.nodes = append(c.nodes, n)
		}
	}
	if why := c.once(true, false); why != "" {
		t.Fatalf("%s, just opened: %s\n%s", c, why, ts.state())
	}
}

// direct returns the address of the server.
func (c *talk) direct() netip.AddrPort { return netip.AddrPortFrom(c.to.Addr(c.family), c.port) }
