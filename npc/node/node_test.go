package node

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// newNetwork puts the test's thread into a network namespace of its own, which the thread takes with it when the test ends, and returns
// another one.
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

func bridge(t *testing.T, name string) netlink.Link {
	t.Helper()
	return add(t, &netlink.Bridge{LinkAttrs: named(name)}, nil)
}

// vxlan is what a test takes for an uplink.
func vxlan(name string, id int) *netlink.Vxlan {
	return &netlink.Vxlan{LinkAttrs: named(name), VxlanId: id, Port: 4789, Learning: true}
}

func TestUplinksAreThePortsThatLeadToNoPod(t *testing.T) {
	pods := newNetwork(t)
	cni, other := bridge(t, "cni0"), bridge(t, "br1")
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
	cni := bridge(t, "cni0")
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
	f := &Follower{Interface: "cni0", Bridges: func() []string { return []string{"cni0"} }, Found: func(u Uplinks) { found <- u },
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
		deadline := time.After(20 * time.Second)
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
	cni := bridge(t, "cni0")
	up := add(t, vxlan("up0", 1), cni)
	look("up0")
	if err := netlink.LinkDel(up); err != nil {
		t.Fatal(err)
	}
	look()
	if len(found) < 2 {
		t.Errorf("told %d times", len(found))
	}
	for _, line := range []string{"there is no interface cni0", "is there now", "other uplinks"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("the log lacks %q\n%s", line, log.String())
		}
	}
}
