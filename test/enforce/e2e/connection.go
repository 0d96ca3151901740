package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// Shortly is how long a packet is waited for that must not arrive.
var Shortly = await.Scaled(100 * time.Millisecond)

const (
	// BackendPort is the TCP port behind Services.
	BackendPort = 81
	// OtherPort is another one that hosts of Connections serve.
	OtherPort = 79
)

// Connection is an open connection: of TCP with both ends, of UDP to a server that answers each datagram.
type Connection struct {
	Line
	From, To *lab.Host
	Family   int
	Proto    string
	Port     uint16 // of the server
	local    uint16 // of the client
	Service  bool   // the client knows a Service's address
	// Nodes are the nodes of local pods that evaluate it. TakenUp are those that took it up in mid-stream: they do not
	// know its client.
	Nodes   []*lab.Node
	TakenUp map[*lab.Node]bool
	// EndedOn are the nodes that have ended it, as long as no end has said anything since.
	EndedOn []*lab.Node
}

// String names the connection.
func (c *Connection) String() string {
	text := fmt.Sprintf("%s port %d to %s, %s %d, IPv%d", c.From.Name(), c.local, c.To.Name(), c.Proto, c.Port,
		c.Family)
	if c.Service {
		text += ", through a Service"
	}
	for n := range c.TakenUp {
		text += ", taken up on " + n.Name()
	}
	return text
}

// Packet opens the connection.
func (c *Connection) Packet() refmodel.Packet {
	p := PacketOf(c.From.Addr(c.Family), c.To.Addr(c.Family), c.Proto, c.Port)
	p.ThroughService = c.From == c.To
	return p
}

// Reverse would open it from the other end.
func (c *Connection) Reverse() refmodel.Packet {
	return PacketOf(c.To.Addr(c.Family), c.From.Addr(c.Family), c.Proto, c.local)
}

// DeniedOn returns the nodes that deny the connection. A node that does not know the client denies it if neither end
// may open it.
func (c *Connection) DeniedOn(now refmodel.State) (nodes []*lab.Node) {
	for _, n := range c.Nodes {
		allowed := now.Allowed(n.Name(), c.Packet()) || c.TakenUp[n] && now.Allowed(n.Name(), c.Reverse())
		if !allowed {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// Becomes returns what is wrong with the connection when both ends say something, now that nodes deny it. It ends a
// moment after the change, or has ended if one of them denied it before.
func (c *Connection) Becomes(deniedOn []*lab.Node, serverFirst bool) (why string) {
	allowed := len(deniedOn) == 0
	ended := slices.ContainsFunc(c.EndedOn, func(n *lab.Node) bool { return slices.Contains(deniedOn, n) })
	for end := time.Now().Add(Converged); ; {
		if why = c.Once(allowed, serverFirst); why == "" || allowed || ended || time.Now().After(end) {
			return why
		}
	}
}

// Once has both ends say something, or the client of UDP, and returns what is wrong with the result.
func (c *Connection) Once(allowed, serverFirst bool) string {
	if c.Proto == "udp" {
		return c.ask(allowed)
	}
	wait := Shortly
	if allowed {
		wait = Converged
	}
	ends := [][2]net.Conn{{c.Client, c.Server}, {c.Server, c.Client}}
	if serverFirst {
		ends[0], ends[1] = ends[1], ends[0]
	}
	for i, e := range ends {
		if got, err := c.Say(e[0], e[1], wait); got != map[bool]string{true: "hello"}[allowed] {
			return fmt.Sprintf("end %d (server first: %t) said something, and %q arrived: %v", i+1, serverFirst, got,
				err)
		}
	}
	return ""
}

// ask sends a datagram, and returns what is wrong with the result.
func (c *Connection) ask(allowed bool) string {
	wait := Shortly
	if allowed {
		wait = Converged
	}
	if err := c.Client.SetDeadline(time.Now().Add(wait)); err != nil {
		return err.Error()
	}
	_, err := c.Client.Write([]byte("hello"))
	if err == nil {
		_, err = c.Client.Read(make([]byte, 1500))
	}
	switch {
	case allowed && err != nil:
		return err.Error()
	case !allowed && err == nil:
		return "it was answered"
	}
	return ""
}

// Entries returns the connection's entries on a node, also reversed ones.
func (c *Connection) Entries(n *lab.Node) (found []conntrack.Entry, err error) {
	family, protocol := uint8(unix.AF_INET), uint8(unix.IPPROTO_TCP)
	if c.Family == 6 {
		family = unix.AF_INET6
	}
	if c.Proto == "udp" {
		protocol = unix.IPPROTO_UDP
	}
	from, to := c.From.Addr(c.Family), c.To.Addr(c.Family)
	return found, n.Do(func() error {
		table, err := conntrack.Open(family)
		if err != nil {
			return err
		}
		defer table.Close()
		return table.Entries(func(a, b netip.Addr) bool { return a == from && b == to || a == to && b == from },
			func(e conntrack.Entry) {
				if e.Protocol == protocol && (e.Source == from && e.SourcePort == c.local || e.Destination == from &&
					e.Port == c.local) {
					found = append(found, e)
				}
			})
	})
}

// Close closes both ends.
func (c *Connection) Close() {
	for _, end := range []net.Conn{c.Client, c.Server} {
		if end != nil {
			_ = end.Close()
		}
	}
}

// Forget deletes the connection's entry on a node.
func (c *Connection) Forget(t *testing.T, n *lab.Node) {
	t.Helper()
	family := netlink.InetFamily(unix.AF_INET)
	if c.Family == 6 {
		family = unix.AF_INET6
	}
	var deleted uint
	if err := n.Do(func() (err error) {
		deleted, err = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, c)
		return err
	}); err != nil || deleted != 1 {
		t.Fatalf("%s: %d entries were deleted on %s, %v", c, deleted, n, err)
	}
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (c *Connection) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	for _, d := range []netlink.IPTuple{f.Forward, f.Reverse} {
		if a, _ := netip.AddrFromSlice(d.SrcIP); a.Unmap() == c.From.Addr(c.Family) && d.SrcPort == c.local &&
			d.Protocol == unix.IPPROTO_TCP {
			return true
		}
	}
	return false
}

// AwaitRestored waits until no node has ended the connection any more.
func (c *Connection) AwaitRestored() string {
	for end := time.Now().Add(Converged); ; time.Sleep(5 * time.Millisecond) {
		marked := ""
		for _, n := range c.Nodes {
			found, err := c.Entries(n)
			if err != nil {
				return err.Error()
			}
			for _, e := range found {
				if e.Mark != 0 {
					marked = "it is still ended on " + n.Name()
				}
			}
		}
		if marked == "" || time.Now().After(end) {
			return marked
		}
	}
}

// Connections is a cluster whose hosts serve more ports of TCP, and return both ends of connections to these.
type Connections struct {
	*Cluster
	accepted map[*lab.Host]chan net.Conn
}

// NewConnections has all hosts of a cluster listen.
func NewConnections(t *testing.T, w *Cluster) *Connections {
	t.Helper()
	ts := &Connections{Cluster: w, accepted: map[*lab.Host]chan net.Conn{}}
	for _, h := range w.Hosts {
		ts.accepted[h] = make(chan net.Conn, 1)
		for _, port := range []int{BackendPort, OtherPort} {
			ts.listen(t, h, port)
		}
	}
	return ts
}

func (ts *Connections) listen(t *testing.T, h *lab.Host, port int) {
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

// Begin opens a connection to an address that leads to its server, from a port that was not in use for long: an ended
// connection keeps its own.
func (ts *Connections) Begin(t *testing.T, c *Connection, address netip.AddrPort) {
	t.Helper()
	c.local, c.TakenUp = c.From.FreshPort(), map[*lab.Node]bool{}
	dialer := net.Dialer{KeepAlive: -1, LocalAddr: &net.TCPAddr{Port: int(c.local)}}
	if c.Proto == "udp" {
		dialer.LocalAddr = &net.UDPAddr{Port: int(c.local)}
	}
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	defer cancel()
	err := c.From.Do(func() (err error) {
		c.Client, err = dialer.DialContext(ctx, c.Proto, address.String())
		return err
	})
	if err == nil && c.Proto == "tcp" {
		select {
		case c.Server = <-ts.accepted[c.To]:
		case <-ctx.Done():
			err = syscall.ETIMEDOUT
		}
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", c, err, ts.State())
	}
	t.Cleanup(c.Close)
	for _, h := range []*lab.Host{c.From, c.To} {
		if n := ts.NodeOf(h); n != nil && !slices.Contains(c.Nodes, n) {
			c.Nodes = append(c.Nodes, n)
		}
	}
	if why := c.Once(true, false); why != "" {
		t.Fatalf("%s, just opened: %s\n%s", c, why, ts.State())
	}
}

// Direct returns the address of the server.
func (c *Connection) Direct() netip.AddrPort { return netip.AddrPortFrom(c.To.Addr(c.Family), c.Port) }

// Line is both ends of an open TCP connection.
type Line struct{ Client, Server net.Conn }

// AwaitAcknowledged waits until no end of a TCP connection has anything left to acknowledge.
func (l Line) AwaitAcknowledged(t *testing.T) {
	t.Helper()
	await.Within(t, Timeout, func() bool {
		for _, end := range []net.Conn{l.Client, l.Server} {
			raw, err := end.(syscall.Conn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			var info *unix.TCPInfo
			if controlErr := raw.Control(func(fd uintptr) {
				info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			}); controlErr != nil || err != nil {
				t.Fatalf("asking for the state of a connection: %v %v", controlErr, err)
			}
			if info.Unacked > 0 {
				return false
			}
		}
		return true
	}, func() string {
		return fmt.Sprintf("an end of %s has not acknowledged everything", l.Client.LocalAddr())
	})
}

// Say sends something from one end, and returns what arrives at the other within a time, and the error of the first.
func (l Line) Say(from, to net.Conn, within time.Duration) (got string, err error) {
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
