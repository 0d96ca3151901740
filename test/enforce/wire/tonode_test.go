package wire

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// denied is the cluster network policy that denies web, and api of the other node, everything.
func denied() e2e.Change {
	const everything = `{networks: [0.0.0.0/0, "::/0"]}`
	api := strings.Replace(e2e.WebAlone, "app: web", "app: api", 1)
	return e2e.Do(e2e.ClusterPolicy("web", e2e.Admin("1", e2e.WebAlone, e2e.Egress("Deny", everything))),
		e2e.ClusterPolicy("api", e2e.Admin("2", api, e2e.Egress("Deny", everything))))
}

// inbox is what sockets of a node received.
type inbox struct {
	mu       sync.Mutex // guards the field below
	received strings.Builder
}

// nodePort is the UDP port that a node listens to.
const nodePort = 5300

// openInbox opens sockets on a node: for UDP, for DHCP by broadcast and by the group that interfaces of pods join, and
// for IGMP and ICMPv6.
func openInbox(t *testing.T, n *lab.Node, interfaces ...string) *inbox {
	t.Helper()
	in := &inbox{}
	listen := func(network, address string) func() (net.PacketConn, error) {
		return func() (net.PacketConn, error) {
			var config net.ListenConfig
			return config.ListenPacket(t.Context(), network, address)
		}
	}
	sockets := []func() (net.PacketConn, error){
		listen("udp4", fmt.Sprint(":", nodePort)), listen("udp6", fmt.Sprint(":", nodePort)), listen("udp4", ":67"),
		listen("ip4:igmp", "0.0.0.0"), listen("ip6:ipv6-icmp", "::"),
	}
	for _, name := range interfaces {
		sockets = append(sockets, func() (net.PacketConn, error) {
			link, err := net.InterfaceByName(name)
			if err != nil {
				return nil, err
			}
			return net.ListenMulticastUDP("udp6", link, &net.UDPAddr{IP: net.ParseIP("ff02::1:2"), Port: 547})
		})
	}
	for _, open := range sockets {
		var c net.PacketConn
		if err := n.Do(func() (err error) { c, err = open(); return err }); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		go in.receive(c)
	}
	return in
}

func (in *inbox) receive(c net.PacketConn) {
	buffer := make([]byte, 2000)
	for {
		n, _, err := c.ReadFrom(buffer)
		if err != nil {
			return // closed
		}
		in.mu.Lock()
		in.received.Write(buffer[:n])
		in.mu.Unlock()
	}
}

func (in *inbox) has(text string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return strings.Contains(in.received.String(), text)
}

// way is a packet to the node that a pod is on.
type way struct {
	about string
	frame []byte
	// linkLocal is set if its source is a link-local address, and always if it has to arrive in any case.
	linkLocal, always bool
}

// sender sends to its node by interfaces on both sides.
type sender struct {
	*lab.Host
	node *lab.Node
	port string // of the node
}

// ways returns packets that reach the node, each with a text of its own at its end.
func (s sender) ways(t *testing.T, step int) []way {
	t.Helper()
	var out []way
	hardware, err := netInterfaceAddr(s.node.Host, s.port)
	if err != nil {
		t.Fatal(err)
	}
	local := func(h *lab.Host, name string) netip.Addr {
		a, err := h.LinkLocal(name)
		if err != nil {
			t.Fatal(err)
		}
		return a.WithZone("")
	}
	own, nodes := local(s.Host, "eth0"), local(s.node.Host, s.port)
	group := func(to netip.Addr) net.HardwareAddr {
		if raw := to.AsSlice(); to.Is6() {
			return append(net.HardwareAddr{0x33, 0x33}, raw[12:]...)
		}
		return net.HardwareAddr{0x01, 0, 0x5e, 0, 0, 1}
	}
	add := func(about string, from, to netip.Addr, source, port uint16) *way {
		at := hardware
		switch {
		case to.IsMulticast():
			at = group(to)
		case strings.Contains(about, "all"):
			at = net.HardwareAddr{255, 255, 255, 255, 255, 255}
		}
		text := fmt.Sprintf("%s of %s to %s, %d;", about, s, to, step)
		out = append(out, way{about: text, frame: frameTo(t, s.Host, at, from, to, source, port, text),
			linkLocal: from.IsLinkLocalUnicast() && from.Is6()})
		return &out[len(out)-1]
	}
	all, source := netip.AddrFrom4([4]byte{255, 255, 255, 255}), uint16(40000+step)
	for _, to := range []netip.Addr{s.node.Addr4(), s.node.PodRanges()[0].Addr().Next(), netip.MustParseAddr("224.0.0.1")} {
		if s.port == s.node.PodInterface() || to == s.node.Addr4() {
			add("UDP", s.Addr4(), to, source, nodePort)
		}
	}
	add("UDP to all", s.Addr4(), all, source, nodePort)
	if s.port == s.node.PodInterface() {
		add("UDP to all of the network", s.Addr4(), lastOf(s.node.PodRanges()[0]), source, nodePort)
	}
	for _, to := range []netip.Addr{s.node.Addr6(), nodes, allNodes} {
		add("UDP", s.Addr6(), to, source, nodePort)
		add("UDP by link-local", own, to, source, nodePort)
	}
	add("DHCP to all", netip.IPv4Unspecified(), all, 68, 67).always = true
	add("DHCP to all again", s.Addr4(), all, 68, 67).always = true
	add("DHCPv6", own, netip.MustParseAddr("ff02::1:2"), 546, 547).always = true
	text := fmt.Sprintf("IGMP of %s, %d;", s, step)
	out = append(out, way{about: text, always: true, frame: frameOf(group(netip.MustParseAddr("224.0.0.1")),
		e2e.HardwareAddr(t, s.Host), igmp(t, s.Addr4(), text))})
	for _, kind := range []uint8{130, 143} {
		text := fmt.Sprintf("MLD %d of %s, %d;", kind, s, step)
		report := e2e.Craft(t, own, allNodes, 1, &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)},
			gopacket.Payload(strings.Repeat("\x00", 20)+text))
		out = append(out, way{about: text, frame: frameOf(group(allNodes), e2e.HardwareAddr(t, s.Host), report), always: true})
	}
	return out
}

// igmp returns a message to all hosts that ends in a text.
func igmp(t *testing.T, from netip.Addr, text string) []byte {
	t.Helper()
	buffer := gopacket.NewSerializeBuffer()
	header := &layers.IPv4{Version: 4, IHL: 5, TTL: 1, Protocol: layers.IPProtocolIGMP, SrcIP: from.AsSlice(),
		DstIP: net.IPv4(224, 0, 0, 1)}
	if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		header, gopacket.Payload(text)); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

// expectWays sends by every way, and expects what arrives at the node.
func expectWays(t *testing.T, w *e2e.Cluster, in *inbox, s sender, arrives func(way) bool) {
	t.Helper()
	w.Step++
	ways := s.ways(t, w.Step)
	send := func(missing bool) (lacking []string) {
		for _, y := range ways {
			if missing && (in.has(y.about) || !y.always && !arrives(y)) {
				continue
			}
			lacking = append(lacking, y.about)
			if err := s.SendFrame("eth0", y.frame); err != nil {
				t.Fatal(err)
			}
		}
		return lacking
	}
	send(false)
	var lacking []string
	await.Within(t, e2e.Converged, func() bool {
		time.Sleep(10 * time.Millisecond)
		lacking = send(true)
		return len(lacking) == 0
	}, func() string { return fmt.Sprintf("%q do not arrive\n%s", lacking, w.State()) })
	time.Sleep(e2e.DeniedTimeout)
	for _, y := range ways {
		if !y.always && !arrives(y) && in.has(y.about) {
			t.Errorf("%s arrives\n%s", y.about, w.State())
		}
	}
}

// TestS105_EveryWayToTheNodeIsDenied sends to a node by all its addresses, by broadcast and by groups, as a pod that is
// denied everything and as one that is not.
func TestS105_EveryWayToTheNodeIsDenied(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, c := range []struct {
			name   string
			attach lab.Attach
			byCNI  bool
			args   []string
		}{
			{name: "bridge", attach: lab.Bridge},
			{name: "without_multicast", attach: lab.Bridge, args: []string{"--allow-mcast=false"}},
			{name: "jumps_of_a_cni", attach: lab.Bridge, byCNI: true, args: []string{"--forward-jump=false"}},
			{name: "routed", attach: lab.Routed},
		} {
			t.Run(c.name, func(t *testing.T) {
				w := e2e.New(t, backend, lab.Config{Attach: c.attach})
				if c.byCNI {
					w.JumpsOfCNI(t)
				}
				var uplink *lab.Pod
				if c.attach == lab.Bridge {
					var err error
					if uplink, err = w.Node("node1").AddUplink("lan", "up0"); err != nil {
						t.Fatal(err)
					}
				}
				w.Begin(t, e2e.Base(), c.args...)
				waysOfPods(t, w, uplink)
			})
		}
	})
}

// waysOfPods sends to both nodes, from a pod of each that is denied everything and from another one, and to the first
// from a host behind an uplink.
func waysOfPods(t *testing.T, w *e2e.Cluster, uplink *lab.Pod) {
	senders, inboxes := map[string]sender{}, map[string]*inbox{}
	for _, pods := range [][2]string{{"web", "db"}, {"api", "copy"}} {
		var ports []string
		for _, pod := range pods {
			s := sender{w.Hosts[pod], w.NodeOf(w.Hosts[pod]), w.NodeOf(w.Hosts[pod]).PodInterface()}
			if s.port == "" {
				s.port = w.Veths[pod]
			}
			senders[pod] = s
			ports = append(ports, s.port)
		}
		in := openInbox(t, senders[pods[0]].node, slices.Compact(ports)...)
		inboxes[pods[0]], inboxes[pods[1]] = in, in
	}
	expect := func(about string, arrives func(pod string, y way) bool) {
		t.Run(about, func(t *testing.T) {
			for _, pod := range []string{"web", "db", "api", "copy"} {
				expectWays(t, w, inboxes[pod], senders[pod], func(y way) bool { return arrives(pod, y) })
			}
			if uplink != nil {
				expectWays(t, w, inboxes["web"], sender{uplink.Host, w.Node("node1"), "cni0"}, func(way) bool { return true })
			}
		})
	}
	free := func(string, way) bool { return true }
	expect("S50_nothing_denies_it", free)
	deniedPods := func(pod string, y way) bool { return pod != "web" && pod != "api" && !y.linkLocal }
	w.Apply(t, w.Objects(e2e.Do(e2e.Base(), denied())))
	expect("S105_all_is_denied_to_one_of_its_pods", deniedPods)
	w.Expect(t, e2e.Wants{"tcp 80": "!web>* !api>*", "icmp": "!web>* !api>*"})
	w.Apply(t, w.Objects(e2e.Do(e2e.Base(), denied(), e2e.Policy("shop/p", e2e.CloseAll), e2e.Policy("ops/p", e2e.CloseAll),
		e2e.ClusterPolicy("others", e2e.Admin("3", e2e.AllPods, e2e.Egress("Deny", e2e.MonAlone))))))
	expect("S50_those_that_other_policies_isolate_reach_it", deniedPods)
	w.Apply(t, w.BaseObjects())
	expect("S50_no_policy_denies_it_any_more", free)
}
