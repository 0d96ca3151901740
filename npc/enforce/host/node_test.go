package host

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Main(m)) }

// newNetwork puts the test's thread into a network namespace of its own, which the thread takes with it when the test
// ends, and returns another one.
func newNetwork(t *testing.T) netns.NsHandle {
	t.Helper()
	runtime.LockOSThread()
	other, err := netns.New()
	if err != nil {
		t.Fatalf("making a network namespace (the tests of this package need root): %v", err)
	}
	t.Cleanup(func() { other.Close() })
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	return other
}

// add makes an interface, up, as a port of a bridge if one is given.
func add(t *testing.T, l netlink.Link, bridge netlink.Link) netlink.Link {
	t.Helper()
	if bridge != nil {
		l.Attrs().MasterIndex = bridge.Attrs().Index
	}
	if err := netlink.LinkAdd(l); err != nil {
		t.Fatalf("making %s %s: %v", l.Type(), l.Attrs().Name, err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
	return l
}

func named(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

func addBridge(t *testing.T, name string) netlink.Link {
	t.Helper()
	return add(t, &netlink.Bridge{LinkAttrs: named(name)}, nil)
}

// vxlan is what a test takes for an uplink.
func vxlan(name string, id int) *netlink.Vxlan {
	return &netlink.Vxlan{LinkAttrs: named(name), VxlanId: id, Port: 4789, Learning: true}
}

func TestUplinksAreThePortsOfNoPod(t *testing.T) {
	pods := newNetwork(t)
	cni, other := addBridge(t, "cni0"), addBridge(t, "br1")
	add(t, &netlink.Veth{LinkAttrs: named("pod0"), PeerName: "eth0", PeerNamespace: netlink.NsFd(int(pods))}, cni)
	add(t, &netlink.Veth{LinkAttrs: named("named0"), PeerName: "eth1", PeerNamespace: netlink.NsFd(int(pods))}, cni)
	// The other end is not in the pod yet.
	add(t, &netlink.Veth{LinkAttrs: named("early0"), PeerName: "early1"}, cni)
	// These two join the bridges.
	add(t, &netlink.Veth{LinkAttrs: named("joint0"), PeerName: "joint1"}, cni)
	joint, err := netlink.LinkByName("joint1")
	if err != nil {
		t.Fatal(err)
	}
	add(t, &netlink.Tuntap{LinkAttrs: named("tap0"), Mode: netlink.TUNTAP_MODE_TAP}, cni)
	add(t, vxlan("up0", 1), cni)
	add(t, vxlan("odd+", 2), cni)
	add(t, vxlan("foreign0", 3), other)
	var f finder
	expect := func(when string, want ...string) {
		t.Helper()
		u, err := f.find([]string{"cni0"}, "named0")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(u.Names, want) || !slices.Equal(u.Left, []string{"odd+"}) {
			t.Errorf("%s: the uplinks are %q, left are %q", when, u.Names, u.Left)
		}
	}
	expect("at first", "named0", "up0")
	if err := netlink.LinkSetMaster(joint, other); err != nil {
		t.Fatal(err)
	}
	expect("two bridges are joined", "joint0", "named0", "up0")
	if u, err := f.find(nil, "named0"); err != nil || len(u.Names) > 0 {
		t.Errorf("without a bridge: %v, %v", u, err)
	}
}

func TestWhatIsBehindAnUplink(t *testing.T) {
	newNetwork(t)
	cni := addBridge(t, "cni0")
	for _, a := range []string{"10.32.1.1/24", "fd32:1::1/64"} {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			t.Fatal(err)
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(cni, addr); err != nil {
			t.Fatal(err)
		}
	}
	up, tap := add(t, vxlan("up0", 1), cni), add(t, &netlink.Tuntap{LinkAttrs: named("tap0"), Mode: netlink.TUNTAP_MODE_TAP}, cni)
	far, near := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	at := func(port netlink.Link, mac net.HardwareAddr) *netlink.Neigh {
		return &netlink.Neigh{LinkIndex: port.Attrs().Index, Family: unix.AF_BRIDGE, HardwareAddr: mac, State: unix.NUD_NOARP, Flags: netlink.NTF_MASTER}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(netlink.NeighSet(at(up, far)))
	must(netlink.NeighSet(at(tap, near)))
	for a, mac := range map[string]net.HardwareAddr{"10.32.1.7": far, "fd32:1::7": far, "10.32.1.8": near} {
		must(netlink.NeighSet(&netlink.Neigh{LinkIndex: cni.Attrs().Index, IP: net.ParseIP(a), HardwareAddr: mac, State: unix.NUD_PERMANENT}))
	}
	must(netlink.RouteAdd(&netlink.Route{LinkIndex: cni.Attrs().Index, Gw: net.ParseIP("10.32.1.9")}))
	var f finder
	expect := func(when, behind string) {
		t.Helper()
		u, err := f.find([]string{"cni0"}, "")
		must(err)
		if text := text(u.Behind); text != behind {
			t.Errorf("%s: behind uplinks is %s, not %s", when, text, behind)
		}
		if text := text(u.Here); text != "fd32:1::/64 10.32.1.0/24" {
			t.Errorf("%s: on the bridge is %s", when, text)
		}
	}
	expect("at first", "fd32:1::7/128 10.32.1.7/32 0.0.0.0/0")
	must(netlink.NeighDel(at(up, far)))
	expect("the bridge forgot one that was silent", "fd32:1::7/128 10.32.1.7/32 0.0.0.0/0")
	must(netlink.NeighSet(at(tap, far)))
	expect("it is at a pod's port", "0.0.0.0/0")
	must(netlink.LinkDel(up))
	if u, err := f.find([]string{"cni0"}, ""); err != nil || len(u.Behind)+len(u.Here) > 0 {
		t.Errorf("without an uplink: %v, %v", u, err)
	}
}

func text(prefixes []netip.Prefix) string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = p.String()
	}
	return strings.Join(texts, " ")
}

func TestMissing(t *testing.T) {
	newNetwork(t)
	for name, missing := range map[string]bool{"": false, "lo": false, "l+": false, "cni0": true, "cali+": true} {
		if why := Missing(name); (why != "") != missing {
			t.Errorf("%q: %q", name, why)
		}
	}
}

// TestFollower follows an interface that comes late, and its uplinks.
func TestFollower(t *testing.T) {
	newNetwork(t)
	var log bytes.Buffer
	found := make(chan Uplinks, 100)
	f := &BridgeFollower{Interface: "cni0", Bridges: func() []string { return []string{"cni0"} }, Found: func(u Uplinks) { found <- u },
		Log: slog.New(slog.NewTextHandler(&log, nil))}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Run would look in the network namespace of another thread.
	changes, err := subscribe(ctx, cancel)
	if err != nil {
		t.Fatal(err)
	}
	look := func(want ...string) {
		t.Helper()
		deadline := time.After(await.Scaled(20 * time.Second))
		for {
			f.Look()
			if slices.Equal(f.uplinks.Names, want) {
				return
			}
			select {
			case <-changes:
			case <-deadline:
				t.Fatalf("the uplinks are %q, not %q", f.uplinks.Names, want)
			}
		}
	}
	look()
	cni := addBridge(t, "cni0")
	up := add(t, vxlan("up0", 1), cni)
	look("up0")
	if err := netlink.LinkDel(up); err != nil {
		t.Fatal(err)
	}
	look()
	if len(found) < 2 {
		t.Errorf("reported %d times", len(found))
	}
	for _, line := range []string{"there is no interface cni0", "is there now", "other uplinks"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("the log lacks %q\n%s", line, log.String())
		}
	}
}

// TestFollowerRuns follows uplinks in the background, and warns of those that no rule can name.
func TestFollowerRuns(t *testing.T) {
	said := &await.Journal{}
	found := make(chan Uplinks, 100)
	a := Attachment{Interface: "run0"}
	f := &BridgeFollower{Interface: a.Interface, Bridges: a.Bridges, Found: func(u Uplinks) { found <- u }, Log: slog.New(slog.NewTextHandler(said, nil))}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	await.That(t, "missing the interface", func() bool { return said.Count("there is no interface run0") == 1 })
	run := addBridge(t, "run0")
	t.Cleanup(func() { _ = netlink.LinkDel(run) })
	for i, name := range []string{"runup1", "runup0", "runodd+"} {
		up := add(t, vxlan(name, 100+i), run)
		t.Cleanup(func() { _ = netlink.LinkDel(up) })
	}
	last := Uplinks{}
	await.That(t, "finding the uplinks", func() bool {
		for len(found) > 0 {
			last = <-found
		}
		return slices.Equal(last.Names, []string{"runup0", "runup1"}) && slices.Equal(last.Left, []string{"runodd+"})
	})
	await.That(t, "warning of the odd name", func() bool { return said.Count("names that iptables does not take") == 1 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestPodPortsOfABridgeFoundByItsAddress: without --pod-interface the bridge is the one with an address in the node's
// range.
func TestPodPortsOfABridgeFoundByItsAddress(t *testing.T) {
	pods := newNetwork(t)
	cni, other := addBridge(t, "cni0"), addBridge(t, "br1")
	pod := add(t, &netlink.Veth{LinkAttrs: named("pod0"), PeerName: "eth0", PeerNamespace: netlink.NsFd(int(pods))}, cni)
	add(t, &netlink.Veth{LinkAttrs: named("foreign0"), PeerName: "eth1", PeerNamespace: netlink.NsFd(int(pods))}, other)
	add(t, vxlan("up0", 1), cni)
	a := Attachment{InRange: within("10.32.1.0/24")}
	expect := func(when string, bridged bool, want ...int) {
		t.Helper()
		found, err := a.Ports()
		var ports []int
		for _, p := range found.Pods {
			ports = append(ports, p.Index)
		}
		if err != nil || found.Bridged != bridged || !slices.Equal(ports, want) {
			t.Errorf("%s: ports %v, bridged %t, %v; want %v, %t", when, ports, found.Bridged, err, want, bridged)
		}
	}
	expect("without an address", false)
	addr, err := netlink.ParseAddr("10.32.1.1/24")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(cni, addr); err != nil {
		t.Fatal(err)
	}
	expect("with an address", true, pod.Attrs().Index)
	a.Interface = "pod0"
	expect("with an interface that is no bridge", false)
}

// TestManyRoutesOnABridge: if the bridge has too many routes, no routed prefix counts as behind an uplink.
func TestManyRoutesOnABridge(t *testing.T) {
	newNetwork(t)
	cni := addBridge(t, "cni0")
	add(t, vxlan("up0", 1), cni)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	addr, err := netlink.ParseAddr("10.32.1.1/24")
	must(err)
	must(netlink.AddrAdd(cni, addr))
	must(netlink.RouteAdd(&netlink.Route{LinkIndex: cni.Attrs().Index, Gw: net.ParseIP("10.32.1.9")}))
	var f finder
	u, err := f.find([]string{"cni0"}, "")
	must(err)
	if text := text(u.Behind); text != "0.0.0.0/0" {
		t.Errorf("with one route, behind uplinks is %s", text)
	}
	for i := range maxBehind + 1 {
		dst := &net.IPNet{IP: net.IPv4(10, 64+byte(i>>8), byte(i), 0), Mask: net.CIDRMask(24, 32)}
		must(netlink.RouteAdd(&netlink.Route{LinkIndex: cni.Attrs().Index, Dst: dst, Scope: netlink.SCOPE_LINK}))
	}
	u, err = f.find([]string{"cni0"}, "")
	must(err)
	if len(u.Behind) != 0 || len(u.Here) != maxBehind {
		t.Errorf("with many routes, behind uplinks is %s, and %d prefixes are on the bridge", text(u.Behind), len(u.Here))
	}
}

func TestLeadsToPod(t *testing.T) {
	at := func(index, master, parent, ns int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: "lo", Index: index, MasterIndex: master, ParentIndex: parent, NetNsID: ns}
	}
	const here = -1
	for name, c := range map[string]struct {
		port, peer netlink.Link
		want       bool
	}{
		"other end in a pod":       {&netlink.Veth{LinkAttrs: at(1, 9, 2, 0)}, nil, true},
		"other end not moved yet":  {&netlink.Veth{LinkAttrs: at(1, 9, 2, here)}, &netlink.Veth{LinkAttrs: at(2, 0, 1, here)}, true},
		"both ends on one bridge":  {&netlink.Veth{LinkAttrs: at(1, 9, 2, here)}, &netlink.Veth{LinkAttrs: at(2, 9, 1, here)}, true},
		"joins two bridges":        {&netlink.Veth{LinkAttrs: at(1, 9, 2, here)}, &netlink.Veth{LinkAttrs: at(2, 8, 1, here)}, false},
		"virtual machine":          {&netlink.Tuntap{LinkAttrs: at(1, 9, 0, here)}, nil, true},
		"card without a function":  {&netlink.Device{LinkAttrs: at(1, 9, 0, here)}, nil, false},
		"tunnel to another node":   {&netlink.Vxlan{LinkAttrs: at(1, 9, 0, here)}, nil, false},
		"bond of the node's cards": {&netlink.Bond{LinkAttrs: at(1, 9, 0, here)}, nil, false},
	} {
		l := links{byIndex: map[int]netlink.Link{1: c.port}}
		if c.peer != nil {
			l.byIndex[2] = c.peer
		}
		if got := l.leadsToPod(c.port); got != c.want {
			t.Errorf("%s: leads to a pod: %t, want %t", name, got, c.want)
		}
	}
}

// TestWithoutAnswersOfTheKernel: what is known stays, nothing is guessed, and it is logged once.
func TestWithoutAnswersOfTheKernel(t *testing.T) {
	newNetwork(t)
	cni := addBridge(t, "cni0")
	add(t, vxlan("up0", 1), cni)
	said := &await.Journal{}
	var found []Uplinks
	f := &BridgeFollower{Bridges: func() []string { return []string{"cni0"} }, Found: func(u Uplinks) { found = append(found, u) },
		Log: slog.New(slog.NewTextHandler(said, nil))}
	f.Look()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}); err != nil { // no socket can be opened
		t.Fatal(err)
	}
	f.Look()
	f.Look()
	booting, bridges := Booting(), Attachment{InRange: within("10.32.1.0/24")}.Bridges()
	_, err := Attachment{InRange: within("10.32.1.0/24")}.Ports()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if booting || bridges != nil || err == nil {
		t.Errorf("booting is %t, the bridges are %q, listing the ports fails with %v", booting, bridges, err)
	}
	if n := said.Count("cannot distinguish the uplinks"); n != 1 || len(found) != 1 || !slices.Equal(f.uplinks.Names, []string{"up0"}) {
		t.Errorf("logged %d times, found %v", n, found)
	}
	f.Look()
	if f.failing != "" || len(found) != 1 {
		t.Errorf("afterwards it fails with %q, and found %v", f.failing, found)
	}
}
