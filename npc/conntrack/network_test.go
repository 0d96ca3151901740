package conntrack

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/sandbox"
)

// bit is the bit that terminates connections in tests.
const bit = 0x2000

// network is a client and a server in namespaces of their own, and one between that forwards for them, the test's.
type network struct {
	t              testing.TB
	family         uint8
	iptables       string
	own            netns.NsHandle
	ends           map[netip.Addr]netns.NsHandle
	client, server netip.Addr
}

// newNetwork makes a network of a family and puts the test's thread into the middle. Its first rule stops connections
// that have the bit: with a reset for TCP if reject says so, else silently.
func newNetwork(t testing.TB, family uint8, reject bool) *network {
	t.Helper()
	sandbox.Thread(t)
	own, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	n := &network{t: t, family: family, iptables: "iptables", own: own, ends: map[netip.Addr]netns.NsHandle{}}
	n.client, n.server = netip.MustParseAddr("10.50.1.2"), netip.MustParseAddr("10.50.2.2")
	if family == unix.AF_INET6 {
		n.client, n.server, n.iptables = netip.MustParseAddr("fd50:1::2"), netip.MustParseAddr("fd50:2::2"), "ip6tables"
	}
	t.Cleanup(func() {
		for _, ns := range n.ends {
			_ = ns.Close()
		}
		_ = own.Close()
	})
	n.join("client", n.client)
	n.join("server", n.server)
	n.sysctl("ipv4/ip_forward", 1)
	n.sysctl("ipv6/conf/all/forwarding", 1)
	n.rule("-A", "FORWARD", "-m", "connmark", "--mark", fmt.Sprintf("%#x/%#x", bit, bit), "-j", "TERMINATE")
	if reject {
		n.rule("-A", "TERMINATE", "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset")
	}
	n.rule("-A", "TERMINATE", "-j", "DROP")
	return n
}

// join makes a namespace with an address and links it to the middle.
func (n *network) join(name string, a netip.Addr) {
	n.t.Helper()
	ns, err := netns.New() // and enters it
	if err != nil {
		n.t.Fatal(err)
	}
	n.ends[a] = ns
	length := 24
	if a.Is6() {
		length = 64
	}
	gateway := a.Prev()
	n.in(a, func() { n.up("lo", netip.Prefix{}) })
	n.in(netip.Addr{}, func() {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns)}
		n.must(netlink.LinkAdd(link))
		n.up(name, netip.PrefixFrom(gateway, length))
	})
	n.in(a, func() {
		n.up("eth0", netip.PrefixFrom(a, length))
		n.must(netlink.RouteAdd(&netlink.Route{Gw: gateway.AsSlice()}))
	})
	n.in(netip.Addr{}, func() {})
}

func (n *network) up(name string, p netip.Prefix) {
	n.t.Helper()
	link, err := netlink.LinkByName(name)
	n.must(err)
	n.must(netlink.LinkSetUp(link))
	if p.IsValid() {
		ip := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
		n.must(netlink.AddrAdd(link, &netlink.Addr{IPNet: ip, Flags: unix.IFA_F_NODAD}))
	}
}

// in does something in the namespace of an end, or in the middle.
func (n *network) in(end netip.Addr, do func()) {
	n.t.Helper()
	if ns, ok := n.ends[end]; ok {
		n.must(netns.Set(ns))
	} else {
		n.must(netns.Set(n.own))
	}
	do()
	n.must(netns.Set(n.own))
}

func (n *network) must(err error) {
	n.t.Helper()
	if err != nil {
		_, _, line, _ := runtime.Caller(1)
		n.t.Fatalf("line %d: %v", line, err)
	}
}

func (n *network) sysctl(name string, value int) {
	n.t.Helper()
	n.must(os.WriteFile("/proc/sys/net/"+name, []byte(strconv.Itoa(value)), 0o644))
}

// rule runs iptables in the middle.
func (n *network) rule(args ...string) string {
	n.t.Helper()
	if len(args) > 1 && args[1] == "TERMINATE" || args[len(args)-1] == "TERMINATE" {
		_ = exec.Command(n.iptables, "-w", "-N", "TERMINATE").Run() // it may be there
	}
	out, err := exec.Command(n.iptables, append([]string{"-w"}, args...)...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("%s %s: %v: %s", n.iptables, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// passed counts the packets that met the last rule of FORWARD.
func (n *network) passed() int {
	n.t.Helper()
	lines := strings.Split(strings.TrimSpace(n.rule("-S", "FORWARD", "-v")), "\n")
	fields := strings.Fields(lines[len(lines)-1])
	for i, f := range fields {
		if f == "-c" {
			count, err := strconv.Atoi(fields[i+1])
			n.must(err)
			return count
		}
	}
	n.t.Fatalf("no counter in %q", lines)
	return 0
}

// table opens the table of the middle.
func (n *network) table() *Table {
	n.t.Helper()
	table, err := Open(n.family)
	n.must(err)
	n.t.Cleanup(table.Close)
	return table
}

// tcp returns both ends of a new connection, over which both have sent something.
func (n *network) tcp() (client, server net.Conn) {
	n.t.Helper()
	n.in(n.server, func() {
		listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(n.server, 8080)))
		n.must(err)
		defer listener.Close()
		n.in(n.client, func() {
			client, err = net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(netip.AddrPortFrom(n.server, 8080)))
			n.must(err)
		})
		server, err = listener.Accept()
		n.must(err)
	})
	n.t.Cleanup(func() {
		for _, c := range []net.Conn{client, server} {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	})
	n.speak(client, server, true)
	n.speak(server, client, true)
	return client, server
}

// udp returns both ends of an exchange of datagrams.
func (n *network) udp() (client, server net.Conn) {
	n.t.Helper()
	at := func(a netip.Addr, port uint16) *net.UDPAddr {
		return net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, port))
	}
	var err error
	n.in(n.server, func() {
		server, err = net.DialUDP("udp", at(n.server, 53), at(n.client, 5300))
		n.must(err)
	})
	n.in(n.client, func() {
		client, err = net.DialUDP("udp", at(n.client, 5300), at(n.server, 53))
		n.must(err)
	})
	n.t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
	})
	n.speak(client, server, true)
	n.speak(server, client, true)
	return client, server
}

// speak sends a word and checks whether the other end hears it, and returns the error of that end.
func (n *network) speak(from, to net.Conn, heard bool) error {
	n.t.Helper()
	word := []byte(time.Now().String())
	if _, err := from.Write(word); err != nil && heard {
		n.t.Fatal(err)
	}
	wait := await.Scaled(300 * time.Millisecond)
	if heard {
		wait = await.Scaled(5 * time.Second)
	}
	n.must(to.SetReadDeadline(time.Now().Add(wait)))
	got := make([]byte, 2*len(word))
	k, err := to.Read(got)
	if heard != (string(got[:k]) == string(word)) || !heard && k > 0 {
		n.t.Errorf("from %s to %s: heard %q, %v", from.LocalAddr(), to.LocalAddr(), got[:k], err)
	}
	return err
}

// entries returns the connections of a table, of the two ends.
func (n *network) entries(table *Table) (all []Entry) {
	n.t.Helper()
	ends := map[netip.Addr]bool{n.client: true, n.server: true}
	n.must(table.Entries(func(a, b netip.Addr) bool { return ends[a] && ends[b] }, func(e Entry) { all = append(all, e) }))
	return all
}

// only returns the single connection that there is.
func (n *network) only(table *Table) Entry {
	n.t.Helper()
	all := n.entries(table)
	if len(all) != 1 {
		n.t.Fatalf("there are %d connections: %+v", len(all), all)
	}
	return all[0]
}

// cut terminates the single connection.
func (n *network) cut(table *Table) {
	n.t.Helper()
	if gone, err := table.Terminate([]Entry{n.only(table)}, bit, true); gone != 0 || err != nil {
		n.t.Fatalf("%d are gone, %v", gone, err)
	}
}
