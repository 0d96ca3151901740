package host

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weave-npc/weave-npc/test/ifaces"
)

// TestBehind has a bridge port and an interface with routes, whose other ends are in another network namespace, beside
// a second interface there.
func TestBehind(t *testing.T) {
	b := ifaces.NewNode(t)
	bridge := b.Bridge("cni0")
	port := b.Port(bridge, "vethb")
	b.Add(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "vethr"}, PeerName: "vethrp",
		PeerNamespace: netlink.NsFd(b.Elsewhere)})
	b.Add(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth9"}, PeerName: "eth8"})
	handle, err := netlink.NewHandleAt(b.Elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	for name, addr := range map[string]string{"vethbp": "10.0.0.2/24", "vethrp": "10.1.0.2/32", "lo": "10.9.9.9/32"} {
		l, err := handle.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		a, err := netlink.ParseAddr(addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := handle.AddrAdd(l, a); err != nil {
			t.Fatal(err)
		}
	}
	six, _ := handle.LinkByName("vethbp")
	a6, _ := netlink.ParseAddr("fd00::2/64")
	if err := handle.AddrAdd(six, a6); err != nil {
		t.Fatal(err)
	}
	ports, err := Attachment{Interface: "cni0"}.Ports()
	if err != nil {
		t.Fatal(err)
	}
	if len(ports.Pods) != 2 || !ports.Bridged || ports.Pods[0].Index != port || !ports.Pods[0].Bridge ||
		ports.Pods[1].Name != "vethr" || ports.Pods[1].Bridge {
		t.Fatalf("ports: %+v", ports)
	}
	r, err := NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	behind, err := r.Behind(ports.Pods[0])
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")}
	if !slices.Equal(behind.Addrs, want) || !slices.Equal(behind.Elsewhere, []netip.Addr{netip.MustParseAddr("10.1.0.2")}) ||
		behind.MAC.String() != six.Attrs().HardwareAddr.String() {
		t.Errorf("behind the bridge port: %+v, not %v", behind, want)
	}
}
