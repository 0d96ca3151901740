package conntrack

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/sandbox"
)

func flow(t testing.TB, src, dst, replySrc, replyDst string, port uint16) {
	t.Helper()
	ip := func(text string) net.IP { return net.IP(netip.MustParseAddr(text).AsSlice()) }
	family := uint8(unix.AF_INET)
	if netip.MustParseAddr(src).Is6() {
		family = unix.AF_INET6
	}
	f := &netlink.ConntrackFlow{FamilyType: family, TimeOut: 600,
		Forward: netlink.IPTuple{SrcIP: ip(src), DstIP: ip(dst), SrcPort: port, DstPort: 53, Protocol: unix.IPPROTO_UDP},
		Reverse: netlink.IPTuple{SrcIP: ip(replySrc), DstIP: ip(replyDst), SrcPort: 53, DstPort: port, Protocol: unix.IPPROTO_UDP}}
	if err := netlink.ConntrackCreate(netlink.ConntrackTable, netlink.InetFamily(family), f); err != nil {
		t.Fatal(err)
	}
}

// left returns the source ports of the connections that there are.
func left(t testing.TB, family uint8) (ports []int) {
	t.Helper()
	flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(family))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range flows {
		ports = append(ports, int(f.Forward.SrcPort))
	}
	slices.Sort(ports)
	return ports
}

// TestS27_DeletesExactlyTheConnectionsOfAnAddress by each of the four ends that it may be.
func TestS27_DeletesExactlyTheConnectionsOfAnAddress(t *testing.T) {
	for _, c := range []struct {
		family           uint8
		pod, peer, other string
	}{
		{unix.AF_INET, "10.32.1.2", "10.32.1.3", "198.51.100.7"},
		{unix.AF_INET6, "fd32:1::2", "fd32:1::3", "2001:db8::7"},
	} {
		sandbox.Thread(t)
		flow(t, c.pod, c.peer, c.peer, c.pod, 1)
		flow(t, c.peer, c.pod, c.pod, c.peer, 2)
		flow(t, c.peer, c.other, c.pod, c.peer, 3)   // to a Service
		flow(t, c.pod, c.peer, c.peer, c.other, 4)   // translated on its way out
		flow(t, c.peer, c.other, c.other, c.peer, 5) // not the pod's
		flow(t, c.pod, c.other, c.other, c.pod, 6)   // not with a local pod
		table, err := Open(c.family)
		if err != nil {
			t.Fatal(err)
		}
		defer table.Close()
		a, local := netip.MustParseAddr(c.pod), netip.MustParseAddr(c.peer)
		for _, step := range []struct {
			scope Scope
			left  []int
		}{{WithLocalPods, []int{5, 6}}, {All, []int{5}}} {
			_, err := table.Delete(func(ends *[4]netip.Addr) bool {
				return concerns(ends, map[netip.Addr]Scope{a: step.scope}, func(b netip.Addr) bool { return b == local })
			})
			if got := left(t, c.family); err != nil || !slices.Equal(got, step.left) {
				t.Errorf("left are %v, not %v; %v", got, step.left, err)
			}
		}
	}
}

// TestMoreConnectionsThanAreDeletedAtOnce deletes several batches, while other connections end by themselves.
func TestMoreConnectionsThanAreDeletedAtOnce(t *testing.T) {
	sandbox.Thread(t)
	const many = 3*deletedAtOnce + 1
	for i := range many {
		flow(t, "10.32.1.2", "10.32.1.3", "10.32.1.3", "10.32.1.2", uint16(1000+i))
	}
	flow(t, "10.32.1.4", "10.32.1.3", "10.32.1.3", "10.32.1.4", 1)
	table, err := Open(unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	n, err := table.Delete(func(ends *[4]netip.Addr) bool { return ends[0] == netip.MustParseAddr("10.32.1.2") })
	if got := left(t, unix.AF_INET); err != nil || n != many || !slices.Equal(got, []int{1}) {
		t.Errorf("%d are deleted, %v; left are %v", n, err, got)
	}
	if n, err := table.Delete(func(*[4]netip.Addr) bool { return false }); n != 0 || err != nil {
		t.Errorf("of none, %d are deleted, %v", n, err)
	}
}

// TestOnlyTheKernelIsBelieved shows that another process cannot end a listing: what it sends is passed over.
func TestOnlyTheKernelIsBelieved(t *testing.T) {
	sandbox.Thread(t)
	flow(t, "10.32.1.2", "10.32.1.3", "10.32.1.3", "10.32.1.2", 1)
	table, err := Open(unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	own, err := unix.Getsockname(table.list.fd)
	if err != nil {
		t.Fatal(err)
	}
	liar, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(liar)
	end := make([]byte, headerLen+4)
	binary.NativeEndian.PutUint32(end, uint32(len(end)))
	binary.NativeEndian.PutUint16(end[4:], unix.NLMSG_DONE)
	binary.NativeEndian.PutUint32(end[8:], table.list.seq+1)
	if err := unix.Sendto(liar, end, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: own.(*unix.SockaddrNetlink).Pid}); err != nil {
		t.Fatal(err)
	}
	if n, err := table.Delete(func(*[4]netip.Addr) bool { return true }); n != 1 || err != nil || len(left(t, unix.AF_INET)) > 0 {
		t.Errorf("%d are deleted, %v; left are %v", n, err, left(t, unix.AF_INET))
	}
}

// TestALaterConnectionOfTheSameAddressesStays shows that what begins between the listing and the deletion is not
// deleted.
func TestALaterConnectionOfTheSameAddressesStays(t *testing.T) {
	sandbox.Thread(t)
	table, err := Open(unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	flow(t, "10.32.1.2", "10.32.1.3", "10.32.1.3", "10.32.1.2", 1)
	flow(t, "10.32.1.2", "10.32.1.4", "10.32.1.4", "10.32.1.2", 2)
	err = table.list.list(unix.AF_INET, nil, func(attrs []byte) error {
		table.put(slices.Clone(attrs), unix.AF_INET)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.FAMILY_V4, everything{}); err != nil {
		t.Fatal(err)
	}
	// The memory of an entry is its id: another entry takes it, so that the next has another one.
	flow(t, "10.32.1.9", "10.32.1.9", "10.32.1.9", "10.32.1.9", 9)
	flow(t, "10.32.1.9", "10.32.1.8", "10.32.1.8", "10.32.1.9", 10)
	flow(t, "10.32.1.2", "10.32.1.3", "10.32.1.3", "10.32.1.2", 1)
	if err := table.flush(); err != nil {
		t.Fatal(err)
	}
	if got := left(t, unix.AF_INET); !slices.Equal(got, []int{1, 9, 10}) {
		t.Errorf("left are %v", got)
	}
}

type everything struct{}

func (everything) MatchConntrackFlow(*netlink.ConntrackFlow) bool { return true }

// BenchmarkDelete lists a table with 100,000 connections, one to be deleted.
func BenchmarkDelete(b *testing.B) {
	sandbox.Thread(b)
	for i := range 100_000 {
		a := netip.AddrFrom4([4]byte{10, 40, byte(i >> 8), byte(i)}).String()
		flow(b, a, "10.32.1.3", "10.32.1.3", a, uint16(1+i>>16))
	}
	table, err := Open(unix.AF_INET)
	if err != nil {
		b.Fatal(err)
	}
	defer table.Close()
	want := map[netip.Addr]Scope{netip.MustParseAddr("10.32.1.9"): All}
	for b.Loop() {
		if _, err := table.Delete(func(ends *[4]netip.Addr) bool { return concerns(ends, want, nil) }); err != nil {
			b.Fatal(err)
		}
	}
}

// TestErrorsOfTheKernelAreReturned: without sockets nothing is deleted, and an error is returned.
func TestErrorsOfTheKernelAreReturned(t *testing.T) {
	sandbox.Thread(t)
	table, err := Open(unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	flow(t, "10.32.1.2", "10.32.1.3", "10.32.1.3", "10.32.1.2", 1)
	table.change.close()
	all := func(*[4]netip.Addr) bool { return true }
	if n, err := table.Delete(all); !errors.Is(err, unix.EBADF) {
		t.Errorf("without the socket to delete with: %d, %v", n, err)
	}
	table.list.close()
	if n, err := table.Delete(all); n != 0 || !errors.Is(err, unix.EBADF) {
		t.Errorf("without the socket to list with: %d, %v", n, err)
	}
	if got := left(t, unix.AF_INET); !slices.Equal(got, []int{1}) {
		t.Errorf("left are %v", got)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	_, err = Open(unix.AF_INET)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("without file descriptors: %v", err)
	}
}

func TestMalformedMessages(t *testing.T) {
	for name, b := range map[string][]byte{"too short": {8, 0, 1}, "shorter than its header": {3, 0, 1, 0}, "longer than the message": {9, 0, 1, 0, 1, 2, 3, 4}} {
		if kind, _, value, rest := attribute(b); kind != 0 || value != nil || rest != nil {
			t.Errorf("%s: an attribute %d of %v before %v", name, kind, value, rest)
		}
	}
	var ends [4]netip.Addr
	if readEnds([]byte{4, 0, tupleOrig, 0}, &ends) {
		t.Error("a connection without a reply direction has ends")
	}
	short := slices.Concat([]byte{5, 0, attrStatus, 0, 1, 0, 0, 0}, nest(attrMark), nest(attrProto, []byte{1, 2, 3}), []byte{9, 0, 1})
	if e := readEntry(short); e != (Entry{}) {
		t.Errorf("an entry of malformed attributes is %+v", e)
	}
	noEnds := (&conn{}).message(nil, msgNew, 0, unix.AF_INET)
	for name, b := range map[string][]byte{
		"too short": {8, 0}, "of no length": make([]byte, headerLen), "without ends": noEnds,
	} {
		if _, ok, err := (&subscription{rest: b}).next(); ok || !errors.Is(err, errMalformed) {
			t.Errorf("%s: an event: %v, %v", name, ok, err)
		}
	}
	if err := (answer{body: []byte{1, 2}}).code(); err == nil {
		t.Error("a short answer is no error")
	}
}

// FuzzNext shows that nothing the kernel might send ends the program.
func FuzzNext(f *testing.F) {
	f.Add([]byte{20, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0})
	f.Add([]byte{40, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 20, 0, 1, 128, 12, 0, 1, 128, 8, 0, 1, 0, 10, 32, 1, 2, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, datagram []byte) {
		s := &subscription{rest: datagram}
		for len(s.rest) > 0 {
			_, _, _ = s.next()
		}
	})
}
