package names

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// trusting makes three resolvers: mon on web's node, copy on another one and, with --dns-resolvers, out. Besides them
// and names, web reaches db.
func trusting(names ...string) e2e.Change {
	return e2e.Do(base(), byName(names...),
		e2e.Pod("kube-system/dns2", e2e.At("copy"), e2e.Labelled("k8s-app=kube-dns"),
			e2e.Port("dns", resolverPort, corev1.ProtocolUDP), e2e.Port("dns-tcp", resolverPort, corev1.ProtocolTCP)),
		e2e.ClusterPolicy("more", e2e.Admin("0", e2e.WebAlone,
			e2e.Egress("Accept", e2e.DBAlone+", {networks: [$out4/32, $out6/128]}"))))
}

// forging makes a network with these resolvers, in which pods send with the addresses of others, and stray, which no
// object lists, does.
func forging(t *testing.T, backend lab.Backend, attach lab.Attach, policy e2e.Change, args ...string) *e2e.Cluster {
	t.Helper()
	w := e2e.New(t, backend, lab.Config{Attach: attach})
	openOutside(t, w)
	w.AddPod(t, "node1", "stray", lab.PodConfig{Addrs: []netip.Addr{netip.MustParseAddr("198.51.100.7"),
		netip.MustParseAddr("2001:db8:7::7")}})
	resolvers := ""
	for _, name := range []string{"mon", "copy", "out"} {
		serve(t, w.Hosts[name])
	}
	e2e.EachFamily(func(family int) {
		resolvers += "," + netip.AddrPortFrom(w.Hosts["out"].Addr(family), resolverPort).String()
	})
	w.Begin(t, policy, append([]string{"--dns-resolvers", resolvers[1:]}, args...)...)
	for _, d := range w.Daemons {
		d.Log.Expect("sends with an address that is not its own")
		d.Log.Expect("the node had pods before their sources were bound")
	}
	if !slices.Contains(args, "--bind-sources=off") {
		awaitReserved(t, w)
	}
	return w
}

// awaitReserved waits until no pod may send as a resolver.
func awaitReserved(t *testing.T, w *e2e.Cluster) {
	t.Helper()
	family := "bridge"
	if w.Attach == lab.Routed {
		family = "inet"
	}
	for _, n := range w.Nodes() {
		e2e.EachFamily(func(ip int) {
			var rules string
			await.Within(t, e2e.Converged, func() bool {
				rules = e2e.Run(t, n.Host, "nft", "list", "table", family, "weave-npc")
				_, set, _ := strings.Cut(rules, "set reserved"+strconv.Itoa(ip))
				set, _, _ = strings.Cut(set, "\tset ")
				return !slices.ContainsFunc([]string{"mon", "copy", "out"}, func(name string) bool {
					return !strings.Contains(set, w.Hosts[name].Addr(ip).String())
				})
			}, func() string { return "the addresses of the resolvers are not reserved:\n" + rules })
		})
	}
}

// asked is a question that its resolver leaves to the test to answer.
type asked struct {
	w        *e2e.Cluster
	resolver *lab.Host
	from, to netip.AddrPort
	name     string
	family   int
	// honest is the address that the resolver gives.
	honest netip.Addr
}

// askOpen has web ask a resolver for a name with a number, which the test answers.
func askOpen(t *testing.T, w *e2e.Cluster, resolver string, port uint16, family int, number byte) asked {
	t.Helper()
	a := asked{w: w, resolver: w.Hosts[resolver], name: fmt.Sprintf("q%d.example.com.", number), family: family,
		honest: outside(family, number)}
	a.to = netip.AddrPortFrom(a.resolver.Addr(family), port)
	c, err := w.Hosts["web"].DialContext(t.Context(), "udp", a.to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Write(question(a.name, family)); err != nil {
		t.Fatal(err)
	}
	a.from = c.LocalAddr().(*net.UDPAddr).AddrPort()
	return a
}

// message returns an answer with an address, and with a text behind it.
func (a asked) message(t *testing.T, addr netip.Addr, text string) []byte {
	t.Helper()
	return packed(t, a.name, a.family, address(a.name, addr), dnsmessage.Resource{Header: header(a.name),
		Body: &dnsmessage.TXTResource{TXT: []string{text}}})
}

// datagram returns a message in an IP packet from the resolver.
func (a asked) datagram(t *testing.T, message []byte) []byte {
	t.Helper()
	return datagram(t, a.to, a.from, message)
}

func datagram(t *testing.T, from, to netip.AddrPort, message []byte) []byte {
	t.Helper()
	return e2e.Craft(t, from.Addr(), to.Addr(), 64, &layers.UDP{SrcPort: layers.UDPPort(from.Port()),
		DstPort: layers.UDPPort(to.Port())}, gopacket.Payload(message))
}

// answered has the resolver send packets, and waits until the addresses in them are learned.
func (a asked) answered(t *testing.T, packets ...[]byte) {
	t.Helper()
	for _, p := range packets {
		if err := a.resolver.SendIP(p); err != nil {
			t.Fatal(err)
		}
	}
	await.Within(t, e2e.Timeout, func() bool { return learned(t, a.w, a.honest) }, func() string {
		return "the honest answer of " + a.to.String() + " is not learned\n" + a.w.State()
	})
}

// learned reports whether a set of web's node has an address.
func learned(t *testing.T, w *e2e.Cluster, a netip.Addr) bool {
	t.Helper()
	return e2e.Holds(w.ListSets(t, w.Node("node1")), ipset.Addr(a))
}

func header(name string) dnsmessage.ResourceHeader {
	return dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: dnsmessage.ClassINET, TTL: 60}
}

// address returns a record of an address.
func address(name string, a netip.Addr) dnsmessage.Resource {
	if a.Is4() {
		return dnsmessage.Resource{Header: header(name), Body: &dnsmessage.AResource{A: a.As4()}}
	}
	return dnsmessage.Resource{Header: header(name), Body: &dnsmessage.AAAAResource{AAAA: a.As16()}}
}

// packed returns an answer.
func packed(t *testing.T, name string, family int, answers ...dnsmessage.Resource) []byte {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(question(name, family)); err != nil {
		t.Fatal(err)
	}
	m.Response, m.Answers = true, answers
	return pack(t, m)
}

func pack(t *testing.T, m dnsmessage.Message) []byte {
	t.Helper()
	out, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// way is how a pod sends packets with a resolver's address to web.
type way struct {
	name   string
	sender string
	to     func(w *e2e.Cluster, t *testing.T) net.HardwareAddr
	// as is the host whose hardware address the frames have, if it is not the sender.
	as string
}

// ways returns the ways to web on a network.
func ways(attach lab.Attach) []way {
	byGateway := func(sender string) way {
		return way{sender + " by the gateway", sender, func(w *e2e.Cluster, t *testing.T) net.HardwareAddr {
			return gateway(t, w, sender)
		}, ""}
	}
	all := []way{byGateway("web"), byGateway("db"), byGateway("api"), byGateway("stray")}
	if attach == lab.Bridge {
		direct := func(w *e2e.Cluster, t *testing.T) net.HardwareAddr { return e2e.HardwareAddr(t, w.Hosts["web"]) }
		all = append(all, way{"db on the bridge", "db", direct, ""}, way{"db as mon's interface", "db", direct, "mon"})
	}
	return all
}

// gateway returns the hardware address of the node at a pod's interface.
func gateway(t *testing.T, w *e2e.Cluster, pod string) (a net.HardwareAddr) {
	t.Helper()
	name := w.Veths[pod]
	if w.Attach == lab.Bridge {
		name = "cni0"
	}
	if err := w.NodeOf(w.Hosts[pod]).Do(func() error {
		link, err := net.InterfaceByName(name)
		if err == nil {
			a = link.HardwareAddr
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return a
}

// frame returns a packet in a frame.
func (y way) frame(t *testing.T, w *e2e.Cluster, packet []byte) []byte {
	t.Helper()
	kind := []byte{8, 0}
	if packet[0]>>4 == 6 {
		kind = []byte{0x86, 0xdd}
	}
	source := w.Hosts[cmp.Or(y.as, y.sender)]
	return bytes.Join([][]byte{y.to(w, t), e2e.HardwareAddr(t, source), kind, packet}, nil)
}

// send sends a packet several times, and returns how many of them arrived at the pod's port on its node.
func (y way) send(t *testing.T, w *e2e.Cluster, packet []byte, times int) (arrived int) {
	t.Helper()
	sender := w.Hosts[y.sender]
	capture, err := w.NodeOf(sender).Capture(w.Veths[y.sender])
	if err != nil {
		t.Fatal(err)
	}
	defer capture.Close()
	frame := y.frame(t, w, packet)
	for range times {
		if err := sender.SendFrame("eth0", frame); err != nil {
			t.Fatal(err)
		}
	}
	await.Within(t, e2e.Timeout, func() bool {
		arrived = 0
		for _, f := range capture.Frames() {
			if !f.Outgoing && bytes.Equal(f.Data, frame) {
				arrived++
			}
		}
		return arrived == times
	}, func() string { return y.name + ": " + strconv.Itoa(arrived) + " frames arrive at the port" })
	return arrived
}

// eachForgery runs a test with each backend, attachment and mode of binding. Where forged is true, sources of pods are
// not bound, which shows that what is sent is what it takes. On a node that had pods, forged sources pass at first, by
// default, but for those of resolvers.
func eachForgery(t *testing.T, policy e2e.Change, test func(t *testing.T, w *e2e.Cluster, forged bool)) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, attach := range []lab.Attach{lab.Bridge, lab.Routed} {
			for _, mode := range []struct {
				name   string
				args   []string
				forged bool
			}{
				{"on", []string{"--bind-sources=on"}, false},
				{"off", []string{"--bind-sources=off"}, true},
				{"default at first", []string{"--bind-audit=10m"}, false},
			} {
				t.Run(attach.String()+" "+mode.name, func(t *testing.T) {
					test(t, forging(t, backend, attach, policy, mode.args...), mode.forged)
				})
			}
		}
	})
}

// TestS110_ForgedAnswers has a pod answer its own question as the resolver, and others answer it so.
func TestS110_ForgedAnswers(t *testing.T) {
	eachForgery(t, trusting("*.example.com"), func(t *testing.T, w *e2e.Cluster, forged bool) {
		number, sent, taken := byte(0), 0, 0
		for _, y := range ways(w.Attach) {
			for _, resolver := range []string{"mon", "copy", "out"} {
				for _, family := range []int{4, 6} {
					number++
					a := askOpen(t, w, resolver, resolverPort, family, number)
					bad := outside(family, 100+number)
					sent += y.send(t, w, a.datagram(t, a.message(t, bad, "forged")), 5)
					a.answered(t, a.datagram(t, a.message(t, a.honest, "honest")))
					if got := learned(t, w, bad); got {
						taken++
					} else if got != forged {
						t.Errorf("%s as %s, IPv%d: it is learned: %t", y.name, resolver, family, got)
					}
				}
			}
		}
		t.Logf("%d forged answers sent, %d addresses of %d learned", sent, taken, number)
		reaches(t, w, outside(4, 1), true)
		reaches(t, w, outside(4, 101), forged)
		reaches(t, w, outside(6, 102), forged)
	})
}

// TestS110_ForgedFragments has pods send the second fragment of a resolver's answer before it comes, with another
// address and the same checksum.
func TestS110_ForgedFragments(t *testing.T) {
	eachForgery(t, trusting("*.example.com"), func(t *testing.T, w *e2e.Cluster, forged bool) {
		number, sent, taken := byte(0), 0, 0
		for _, y := range ways(w.Attach) {
			for _, family := range []int{4, 6} {
				if y.sender == "api" {
					continue // its node waits for the other fragment
				}
				number++
				a := askOpen(t, w, "mon", resolverPort, family, number)
				bad := outside(family, 100+number)
				honest := fragments(a.datagram(t, a.message(t, a.honest, "\x80\x80\x80\x80")), uint32(number))
				other := fragments(a.datagram(t, a.message(t, bad, "\x80\x80\x80\x80")), uint32(number))
				sent += y.send(t, w, balanced(honest[1], other[1]), 1)
				packets := honest[:]
				if forged {
					a.honest = bad
					packets = honest[:1]
				}
				a.answered(t, packets...)
				if got := learned(t, w, bad); got {
					taken++
				} else if got != forged {
					t.Errorf("%s, IPv%d: it is learned: %t", y.name, family, got)
				}
			}
		}
		t.Logf("%d forged fragments sent, %d addresses of %d learned", sent, taken, number)
		reaches(t, w, outside(4, 101), forged)
		reaches(t, w, outside(6, 102), forged)
	})
}
