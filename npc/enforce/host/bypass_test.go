package host

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/test/ifaces"
)

// within returns what Attachment.InRange asks for.
func within(ranges ...string) func(netip.Addr) bool {
	return func(a netip.Addr) bool {
		for _, r := range ranges {
			if netip.MustParsePrefix(r).Contains(a) {
				return true
			}
		}
		return false
	}
}

func TestBypassReason(t *testing.T) {
	noNode := func(netip.Addr) bool { return false }
	families := []npc.Family{npc.IPv4, npc.IPv6}
	named := Attachment{Interface: "blind0"}
	byRange := Attachment{InRange: within("10.32.1.0/24")}
	elsewhere := Attachment{InRange: within("10.32.2.0/24")}
	if why := named.BypassReason(families, noNode); why != "" {
		t.Errorf("without a bridge: %q", why)
	}
	add := func(name string) netlink.Link {
		l := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
		if err := netlink.LinkAdd(l); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netlink.LinkDel(l) })
		return l
	}
	gateway, err := netlink.ParseAddr("10.32.1.1/24")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(add("blind0"), gateway); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
		path := "/proc/sys/net/bridge/" + f
		for _, bypassed := range []bool{true, false} {
			value := map[bool]string{true: "0", false: "1"}[bypassed]
			if err := os.WriteFile(path, []byte(value), 0); err != nil {
				t.Fatalf("the kernel has no br_netfilter: %v", err)
			}
			for _, a := range []Attachment{named, byRange} {
				if why := a.BypassReason(families, noNode); strings.Contains(why, f) != bypassed {
					t.Errorf("%s=%s: %q", f, value, why)
				}
			}
			if why := elsewhere.BypassReason(families, noNode); why != "" {
				t.Errorf("a bridge without pods: %q", why)
			}
		}
	}
	ipvs := add("kube-ipvs0")
	if why := named.BypassReason(families, noNode); !strings.Contains(why, "IPVS") {
		t.Errorf("with kube-ipvs0: %q", why)
	}
	_ = netlink.LinkDel(ipvs)
}

func TestTCPLiberal(t *testing.T) {
	const liberal = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal"
	for value, want := range map[string]bool{"1": true, "0": false} {
		if err := os.WriteFile(liberal, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
		if TCPLiberal() != want {
			t.Errorf("%s=%s is %t", liberal, value, !want)
		}
	}
}

// TestBooting: what pods are attached by leads elsewhere, and so does the uplink of a node that is a container.
func TestBooting(t *testing.T) {
	elsewhere := ifaces.NewNode(t).Elsewhere
	expect := func(about string, booting bool) {
		t.Helper()
		if Booting() != booting {
			t.Errorf("%s: booting is %t", about, !booting)
		}
	}
	expect("nothing is attached", true)
	add := func(name string, peer any) netlink.Link {
		t.Helper()
		l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-peer", PeerNamespace: peer}
		if err := netlink.LinkAdd(l); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netlink.LinkDel(l) })
		if err := netlink.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	add("both", nil)
	expect("a veth has both ends here", true)
	for _, to := range []string{"0.0.0.0/0", "::/0"} {
		up := add("up0", netlink.NsFd(elsewhere))
		expect("a veth leads elsewhere", false)
		_, everywhere, err := net.ParseCIDR(to)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: up.Attrs().Index, Dst: everywhere, Scope: netlink.SCOPE_LINK}); err != nil {
			t.Fatal(err)
		}
		expect("it is the uplink, "+to, true)
		pod := add("pod0", netlink.NsFd(elsewhere))
		expect("and another one is not", false)
		for _, l := range []netlink.Link{pod, up} {
			if err := netlink.LinkDel(l); err != nil {
				t.Fatal(err)
			}
		}
	}
}
