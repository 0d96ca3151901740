package binding

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/iptables/ports"
	"github.com/weave-npc/weave-npc/npc/enforce/host"
)

func addrs(text string) (out []netip.Addr) {
	for _, a := range strings.Fields(text) {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// node is a node whose pods come and go.
type node struct {
	*bindings
	pods  map[netip.Addr]Owner
	ports []host.Port
}

func newNode(kept map[ports.Source]string) *node {
	n := &node{pods: map[netip.Addr]Owner{}}
	n.bindings = newBindings(API{
		Owner:   func(a netip.Addr) (Owner, bool) { o, found := n.pods[a]; return o, found },
		InRange: netip.MustParsePrefix("10.0.0.0/16").Contains,
	}, Config{Prefixes: []netip.Prefix{netip.MustParsePrefix("2001:db8::/64")}, Routing: []string{"vpn"}}, kept)
	return n
}

// api has a pod of this node.
func (n *node) api(pod, uid, has string) {
	namespace, name, _ := strings.Cut(pod, "/")
	maps.DeleteFunc(n.pods, func(_ netip.Addr, o Owner) bool { return o.UID == types.UID(uid) })
	for _, a := range addrs(has) {
		n.pods[a] = Owner{UID: types.UID(uid), Namespace: namespace, Name: name, Local: true}
	}
}

// port has a port of a bridge, with a network namespace of its own behind it.
func (n *node) port(index int, has string) {
	n.set(host.Port{Index: index, Bridge: true, NetNSID: index}, byte(index), has, "")
}

func (n *node) set(p host.Port, mac byte, has, elsewhere string) {
	n.ports = append(slices.DeleteFunc(n.ports, func(q host.Port) bool { return q.Index == p.Index }), p)
	n.setPorts(n.ports)
	for range 2 { // addresses have to settle
		n.setBehind(p.Index, host.Behind{MAC: net.HardwareAddr{2, 0, 0, 0, 0, mac}, Addrs: addrs(has), Elsewhere: addrs(elsewhere)})
	}
}

func (n *node) remove(index int) {
	n.ports = slices.DeleteFunc(n.ports, func(q host.Port) bool { return q.Index == index })
	n.setPorts(n.ports)
}

// text returns what is decided, a line for each port.
func (n *node) text() string {
	r := n.decide([]ports.MAC{{2, 0, 0, 0, 0, 99}})
	var lines []string
	for _, p := range n.ports {
		var has []string
		var pod string
		for s, name := range r.Sources {
			if s.Port == p.Index {
				pod = name
				has = append(has, fmt.Sprintf("%s@%x", s.Addr, s.MAC[5]))
			}
		}
		slices.Sort(has)
		line := fmt.Sprintf("%d: %s %s", p.Index, pod, strings.Join(has, " "))
		if why := r.Unbound[p.Index]; why != "" {
			line = fmt.Sprintf("%d: %s", p.Index, why)
		}
		lines = append(lines, line)
	}
	for a, uid := range r.Unlisted {
		lines = append(lines, fmt.Sprintf("unlisted %s of %s", a, uid))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// bindingTest does something on a node, and wants these bindings then.
type bindingTest struct {
	kept map[ports.Source]string
	does func(n *node)
	want string
}

func (c bindingTest) run(t *testing.T) {
	n := newNode(c.kept)
	c.does(n)
	if got := n.text(); got != c.want {
		t.Errorf("got\n%s\nwant\n%s", got, c.want)
	}
	if again := n.text(); again != c.want {
		t.Errorf("the second time\n%s", again)
	}
}

func TestS104_PodsOfPorts(t *testing.T) {
	for name, test := range map[string]bindingTest{
		"a pod": {does: func(n *node) {
			n.api("a/web", "1", "10.0.0.2 fd00::2")
			n.port(5, "10.0.0.2 fd00::2 fe80::5")
		}, want: "5: a/web 10.0.0.2@5 fd00::2@5 fe80::5@5"},
		"before the API knows it": {does: func(n *node) { n.port(5, "10.0.0.2 192.0.2.1") },
			want: "5: not known yet 10.0.0.2@5"},
		"no address yet": {does: func(n *node) { n.port(5, "") }, want: "5: no-address"},
		"no pod of ours": {does: func(n *node) { n.port(5, "172.17.0.2 fe80::5") }, want: "5: no-pod"},
		"an address that another pod has": {does: func(n *node) {
			n.api("a/web", "1", "10.0.0.2")
			n.api("a/db", "2", "10.0.0.3")
			n.port(5, "10.0.0.2 10.0.0.3")
			n.port(6, "10.0.0.3")
		}, want: "5: a/web 10.0.0.2@5\n6: a/db 10.0.0.3@6"},
		"an address of a pod whose port is known, before the API knows the thief": {does: func(n *node) {
			n.api("a/db", "2", "10.0.0.3")
			n.port(6, "10.0.0.3")
			n.text()
			n.port(5, "10.0.0.3 10.0.0.4")
		}, want: "5: not known yet 10.0.0.4@5\n6: a/db 10.0.0.3@6"},
		"the runtime removes the address": {does: func(n *node) {
			n.api("a/web", "1", "10.0.0.2")
			n.port(5, "10.0.0.2")
			n.text()
			n.port(5, "")
		}, want: "5: a/web 10.0.0.2@5"},
		"the object goes": {does: func(n *node) {
			n.api("a/web", "1", "10.0.0.2")
			n.port(5, "10.0.0.2")
			n.text()
			n.api("a/web", "1", "")
		}, want: "5: a/web 10.0.0.2@5\nunlisted 10.0.0.2 of 1"},
		"the object goes, and its address goes to another pod": {does: func(n *node) {
			n.api("a/web", "1", "10.0.0.2")
			n.port(5, "10.0.0.2")
			n.text()
			n.api("a/web", "1", "")
			n.api("a/db", "2", "10.0.0.2")
			n.port(6, "10.0.0.2")
		}, want: "5: no-pod\n6: a/db 10.0.0.2@6"},
		"the object of a static pod is made again": {does: func(n *node) {
			n.api("a/web", "1", "10.0.0.2")
			n.port(5, "10.0.0.2")
			n.text()
			n.api("a/web", "1", "")
			n.api("a/web", "2", "10.0.0.2")
		}, want: "5: a/web 10.0.0.2@5"},
		"the port goes": {does: func(n *node) {
			n.api("a/web", "1", "10.0.0.2")
			n.port(5, "10.0.0.2")
			n.text()
			n.remove(5)
			n.port(6, "10.0.0.2")
		}, want: "6: a/web 10.0.0.2@6"},
		"read back": {kept: map[ports.Source]string{
			{Port: 5, MAC: ports.MAC{2, 0, 0, 0, 0, 7}, Addr: netip.MustParseAddr("10.0.0.2")}: "a/web",
			{Port: 5, MAC: ports.MAC{2, 0, 0, 0, 0, 7}, Addr: netip.MustParseAddr("10.0.0.9")}: "not known yet"},
			does: func(n *node) { n.port(5, "") }, want: "5: a/web 10.0.0.2@5"},
	} {
		t.Run(name, test.run)
	}
}

func TestS104_AddressesOfPorts(t *testing.T) {
	for name, test := range map[string]bindingTest{
		"a status that lacks a family": {does: func(n *node) {
			n.api("a/web", "1", "10.0.0.2")
			n.port(5, "10.0.0.2 fd00::2")
		}, want: "5: a/web 10.0.0.2@5\nunlisted fd00::2 of 1"},
		"a prefix of the operator": {does: func(n *node) {
			n.api("a/web", "1", "10.0.0.2")
			n.port(5, "10.0.0.2 2001:db8::7")
		}, want: "5: a/web 10.0.0.2@5 2001:db8::7@5\nunlisted 2001:db8::7 of 1"},
		"a second interface": {does: func(n *node) {
			n.api("a/web", "1", "10.0.0.2")
			n.set(host.Port{Index: 5, Bridge: true, NetNSID: 1}, 5, "10.0.0.2", "172.16.0.5 2001:db8::8")
			n.set(host.Port{Index: 6, Bridge: true, NetNSID: 1}, 6, "172.16.0.5 2001:db8::8", "10.0.0.2")
		}, want: "5: a/web 10.0.0.2@5 2001:db8::8@5\n6: not known yet 2001:db8::8@6"},
		"a second interface without a prefix": {does: func(n *node) {
			n.api("a/web", "1", "10.0.0.2")
			n.set(host.Port{Index: 5, Bridge: true, NetNSID: 1}, 5, "10.0.0.2", "172.16.0.5")
			n.set(host.Port{Index: 6, Bridge: true, NetNSID: 1}, 6, "172.16.0.5", "10.0.0.2")
		}, want: "5: a/web 10.0.0.2@5\n6: second"},
		"a pod that routes": {does: func(n *node) {
			n.api("vpn/gw", "1", "10.0.0.2")
			n.port(5, "10.0.0.2")
		}, want: "5: routing"},
		"another MAC address": {does: func(n *node) {
			n.api("a/web", "1", "10.0.0.2")
			n.port(5, "10.0.0.2")
			n.text()
			n.set(host.Port{Index: 5, Bridge: true, NetNSID: 5}, 50, "10.0.0.2", "")
		}, want: "5: a/web 10.0.0.2@32"},
		"another port's MAC address": {does: func(n *node) {
			n.api("a/web", "1", "10.0.0.2")
			n.api("a/db", "2", "10.0.0.3")
			n.port(5, "10.0.0.2")
			n.port(6, "10.0.0.3")
			n.text()
			n.set(host.Port{Index: 5, Bridge: true, NetNSID: 5}, 6, "10.0.0.2", "")
		}, want: "5: a/web 10.0.0.2@5\n6: a/db 10.0.0.3@6"},
		"the bridge's MAC address": {does: func(n *node) {
			n.api("a/web", "1", "10.0.0.2")
			n.port(5, "10.0.0.2")
			n.text()
			n.set(host.Port{Index: 5, Bridge: true, NetNSID: 5}, 99, "10.0.0.2", "")
		}, want: "5: a/web 10.0.0.2@5"},
		"one link-local address at two ports of a bridge": {does: func(n *node) {
			n.api("a/web", "1", "10.0.0.2")
			n.api("a/db", "2", "10.0.0.3")
			n.port(5, "10.0.0.2 fe80::1")
			n.port(6, "10.0.0.3 fe80::1")
		}, want: "5: a/web 10.0.0.2@5 fe80::1@5\n6: a/db 10.0.0.3@6"},
		"one link-local address at two interfaces with routes": {does: func(n *node) {
			n.api("a/web", "1", "10.0.0.2")
			n.api("a/db", "2", "10.0.0.3")
			n.set(host.Port{Index: 5, NetNSID: 5}, 5, "10.0.0.2 fe80::1", "")
			n.set(host.Port{Index: 6, NetNSID: 6}, 6, "10.0.0.3 fe80::1", "")
		}, want: "5: a/web 10.0.0.2@0 fe80::1@0\n6: a/db 10.0.0.3@0 fe80::1@0"},
	} {
		t.Run(name, test.run)
	}
}

// TestS110_ReservedAddresses reserves those of others, and those of local pods once they are bound.
func TestS110_ReservedAddresses(t *testing.T) {
	n := newNode(nil)
	if got := n.reserved(n.decide(nil)); got != nil {
		t.Errorf("reserved: %s", got)
	}
	n.bindings.api.Reserved = func() []netip.Addr { return addrs("10.0.0.1 10.0.0.2 10.1.0.1 192.0.2.1") }
	n.api("kube-system/dns", "u1", "10.0.0.1")
	n.api("kube-system/vm", "u2", "10.0.0.2")
	n.api("kube-system/far", "u3", "10.1.0.1")
	far := n.pods[addrs("10.1.0.1")[0]]
	far.Local = false
	n.pods[addrs("10.1.0.1")[0]] = far
	n.port(7, "10.0.0.1")
	if got := n.reserved(n.decide(nil)); !slices.Equal(got, addrs("10.0.0.1 10.1.0.1 192.0.2.1")) {
		t.Errorf("reserved: %s", got)
	}
}
