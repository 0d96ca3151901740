package lab

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		standUntilKilled()
	}
	os.Exit(Main(m))
}

// timeout is for probes that must arrive: shorter than the first retransmission of a SYN, which would hide a loss.
var timeout = await.Scaled(900 * time.Millisecond)

// newHarness returns a network with pods that serve: two on node1, and one on node2 unless there is but one node.
func newHarness(t *testing.T, config Config) (*Network, []*Host) {
	t.Helper()
	w, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	places := map[string]string{"shop/web": "node1", "shop/db": "node1", "ops/monitor": w.nodes[len(w.nodes)-1].name}
	for _, name := range []string{"shop/web", "shop/db", "ops/monitor"} {
		addPod(t, w.Node(places[name]), name, PodConfig{})
	}
	for _, h := range w.Hosts() {
		serve(t, h)
	}
	return w, w.Hosts()
}

func addPod(t *testing.T, n *Node, name string, config PodConfig) *Pod {
	t.Helper()
	p, err := n.AddPod(name, config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func serve(t *testing.T, h *Host) {
	t.Helper()
	for proto, port := range map[string]uint16{"tcp": 80, "udp": 53, "sctp": 9999} {
		if err := h.Serve(proto, port); err != nil {
			t.Fatal(err)
		}
	}
}

func questions(hosts []*Host) []Question {
	var all []Question
	for _, family := range []int{4, 6} {
		for proto, port := range map[string]uint16{"tcp": 80, "udp": 53, "icmp": 0, "sctp": 9999} {
			all = append(all, Question{From: hosts, To: hosts, Proto: proto, Port: port, Family: family})
		}
	}
	return all
}

func TestEverythingReachesEverythingUntilItIsDropped(t *testing.T) {
	for _, attach := range []Attach{Bridge, Routed} {
		t.Run(attach.String(), func(t *testing.T) {
			t.Parallel()
			w, hosts := newHarness(t, Config{Nodes: 2, IPv4: true, IPv6: true, Attach: attach})
			for _, q := range questions(hosts) {
				if err := w.Expect(t.Context(), q, Everything, 10*time.Second); err != nil {
					t.Errorf("%s: %v", q, err)
				}
			}
			for _, iptables := range []string{"iptables-nft", "ip6tables-nft"} {
				for _, n := range w.Nodes() {
					command := n.Command(t.Context(), iptables, "-w", "-I", "FORWARD", "-j", "DROP")
					if output, err := command.CombinedOutput(); err != nil {
						t.Fatalf("%v: %s", err, output)
					}
				}
			}
			behindNodes := func(h *Host) bool { return strings.Contains(h.Name(), "/") }
			// A pod and its own node talk without forwarding, and so do all that are on the switch.
			direct := func(from, to *Host) bool {
				own := func(pod, node *Host) bool {
					for _, n := range w.Nodes() {
						for _, r := range n.PodRanges() {
							if n.Host == node && behindNodes(pod) && r.Contains(pod.Addr4()) {
								return true
							}
						}
					}
					return false
				}
				return from == to || own(from, to) || own(to, from) || !behindNodes(from) && !behindNodes(to)
			}
			for _, q := range questions(hosts) {
				if err := w.Expect(t.Context(), q, direct, 10*time.Second); err != nil {
					t.Errorf("%s: %v", q, err)
				}
			}
		})
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	w, _ := newHarness(t, Config{Nodes: 1, IPv4: true, IPv6: true})
	reject := w.Node("node1").Command(t.Context(), "iptables-nft", "-w", "-I", "FORWARD", "-p", "tcp", "--dport", "81",
		"-j", "REJECT", "--reject-with", "icmp-admin-prohibited")
	if output, err := reject.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	web, db := host(t, w, "shop/web"), host(t, w, "shop/db")
	for _, c := range []struct {
		name   string
		packet Packet
		want   Verdict
		answer string
	}{
		{"tcp served", Packet{Proto: "tcp", To: db.Addr4(), Port: 80}, Allowed, "shop/db"},
		{"udp served", Packet{Proto: "udp", To: db.Addr6(), Port: 53}, Allowed, "shop/db"},
		{"udp in fragments", Packet{Proto: "udp", To: db.Addr4(), Port: 53, Size: 4000}, Allowed, "shop/db"},
		{"udp in fragments, IPv6", Packet{Proto: "udp", To: db.Addr6(), Port: 53, Size: 4000}, Allowed, "shop/db"},
		{"icmp in fragments", Packet{Proto: "icmp", To: db.Addr6(), Size: 4000}, Allowed, ""},
		{"tcp closed", Packet{Proto: "tcp", To: db.Addr6(), Port: 82}, Refused, ""},
		{"udp closed", Packet{Proto: "udp", To: db.Addr4(), Port: 82}, Refused, ""},
		{"sctp closed", Packet{Proto: "sctp", To: db.Addr4(), Port: 82}, Refused, ""},
		{"sctp source port", Packet{Proto: "sctp", To: db.Addr4(), Port: 9999, FromPort: 7777}, Allowed, ""},
		{"tcp source", Packet{Proto: "tcp", To: db.Addr4(), Port: 80, From: web.Addr4(), FromPort: 4444}, Allowed, "shop/db"},
		{"tcp rejected", Packet{Proto: "tcp", To: db.Addr4(), Port: 81}, Unreachable, ""},
		{"no pod there", Packet{Proto: "tcp", To: netip.MustParseAddr("10.32.1.200"), Port: 80}, Dropped, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want != Dropped {
				c.packet.Timeout = timeout
			}
			got, answer, err := web.Ask(t.Context(), c.packet)
			if err != nil || got != c.want || answer != c.answer {
				t.Errorf("got %s %q %v, want %s %q", got, answer, err, c.want, c.answer)
			}
		})
	}
}

func host(t *testing.T, w *Network, name string) *Host {
	t.Helper()
	for _, h := range w.Hosts() {
		if h.Name() == name {
			return h
		}
	}
	t.Fatalf("no host %s", name)
	return nil
}

func TestServiceReachesItsPodAlsoFromThePodItself(t *testing.T) {
	for _, backend := range []Backend{NFT, Legacy} {
		t.Run(string(backend), func(t *testing.T) {
			t.Parallel()
			w, _ := newHarness(t, Config{Nodes: 1, IPv4: true, IPv6: true})
			node, web, db := w.Node("node1"), host(t, w, "shop/web"), host(t, w, "shop/db")
			for _, pair := range [][2]netip.Addr{
				{netip.MustParseAddr("10.96.0.5"), db.Addr4()},
				{netip.MustParseAddr("fd10:96::5"), db.Addr6()},
			} {
				err := node.AddService(t.Context(), Service{Backend: backend, Proto: "tcp",
					Virtual: netip.AddrPortFrom(pair[0], 8080), Pod: netip.AddrPortFrom(pair[1], 80)})
				if err != nil {
					t.Fatal(err)
				}
				for _, from := range []*Host{web, db, node.Host} {
					packet := Packet{Proto: "tcp", To: pair[0], Port: 8080, Timeout: timeout}
					verdict, answer, err := from.Ask(t.Context(), packet)
					if err != nil || verdict != Allowed || answer != "shop/db" {
						t.Errorf("from %s to %s: %s %q %v", from, pair[0], verdict, answer, err)
					}
				}
			}
		})
	}
}

// A pod that follows another at its address is reached at once, by those too that talked to the first one.
func TestAddressIsUsedAgain(t *testing.T) {
	for _, attach := range []Attach{Bridge, Routed} {
		t.Run(attach.String(), func(t *testing.T) {
			t.Parallel()
			w, _ := newHarness(t, Config{Nodes: 2, IPv4: true, IPv6: true, Attach: attach})
			n, web := w.Node("node1"), host(t, w, "shop/web")
			stray := netip.MustParseAddr("10.99.0.7")
			for i := range 3 {
				addrs := []netip.Addr{stray, netip.MustParseAddr("fd10:32:0:1::77")}
				p := addPod(t, n, "a/pod", PodConfig{Addrs: addrs})
				serve(t, p.Host)
				for _, addr := range addrs {
					for _, from := range []*Host{web, host(t, w, "ops/monitor"), n.Host, w.Outside()} {
						packet := Packet{Proto: "tcp", To: addr, Port: 80, Timeout: timeout}
						verdict, err := from.Probe(t.Context(), packet)
						if err != nil || verdict != Allowed {
							t.Errorf("time %d, from %s to %s: %s %v", i, from, addr, verdict, err)
						}
					}
				}
				if _, err := n.AddPod("another/pod", PodConfig{Addrs: addrs}); err == nil {
					t.Error("two pods have one address")
				}
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestRawPacketsArrive(t *testing.T) {
	t.Parallel()
	w, _ := newHarness(t, Config{Nodes: 1, IPv4: true, IPv6: true})
	web, db := host(t, w, "shop/web"), host(t, w, "shop/db")
	capture, err := db.Capture("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer capture.Close()
	forged := netip.MustParseAddr("198.51.100.1")
	packet := udpPacket(forged, db.Addr4(), "forged source")
	if err := web.SendIP(packet); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Scaled(10*time.Second))
	defer cancel()
	frame, err := capture.Await(ctx, func(f Frame) bool { return bytes.Contains(f.IP(), []byte("forged source")) })
	if err != nil {
		t.Fatal(err)
	}
	if source := frame.IP()[12:16]; !bytes.Equal(source, forged.AsSlice()) {
		t.Errorf("came from %v", source)
	}
	copy(frame.Data[14+28:], "by the frame!")
	if err := web.SendFrame("eth0", frame.Data); err != nil {
		t.Fatal(err)
	}
	if _, err := capture.Await(ctx, func(f Frame) bool { return bytes.Contains(f.IP(), []byte("by the frame!")) }); err != nil {
		t.Fatal(err)
	}
}

func udpPacket(from, to netip.Addr, payload string) []byte {
	packet := make([]byte, 28+len(payload))
	packet[0], packet[8], packet[9] = 0x45, 64, 17
	copy(packet[12:], from.AsSlice())
	copy(packet[16:], to.AsSlice())
	binary.BigEndian.PutUint16(packet[20:], 1000)
	binary.BigEndian.PutUint16(packet[22:], 53)
	binary.BigEndian.PutUint16(packet[24:], uint16(8+len(payload)))
	copy(packet[28:], payload)
	return packet
}

func TestLinkLocalAddressesAnswer(t *testing.T) {
	t.Parallel()
	w, _ := newHarness(t, Config{Nodes: 1, IPv4: true, IPv6: true})
	addr, err := host(t, w, "shop/db").LinkLocal("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for proto, port := range map[string]uint16{"tcp": 80, "udp": 53, "icmp": 0} {
		packet := Packet{Proto: proto, To: addr, Port: port, Timeout: timeout}
		verdict, err := host(t, w, "shop/web").Probe(t.Context(), packet)
		if err != nil || verdict != Allowed {
			t.Errorf("%s: %s %v", proto, verdict, err)
		}
	}
}

func TestExpectShowsWhatIsDifferent(t *testing.T) {
	t.Parallel()
	w, _ := newHarness(t, Config{Nodes: 1, IPv4: true, Dump: func(n *Node) string { return "the state of " + n.Name() }})
	web, db := host(t, w, "shop/web"), host(t, w, "shop/db")
	q := Question{From: []*Host{web, db}, To: []*Host{web, db}, Proto: "tcp", Port: 80, Family: 4}
	err := w.Expect(t.Context(), q, Nothing, 0)
	if err == nil {
		t.Fatal("nothing was missed")
	}
	want := `wanted, within 0s:
tcp port 80, IPv4
from \ to  shop/web  shop/db
shop/web   ok        --
shop/db    --        ok

seen:
tcp port 80, IPv4
from \ to  shop/web  shop/db
shop/web   ok        OK!
shop/db    OK!       ok

=== node1
the state of node1
`
	if err.Error() != want {
		t.Errorf("got:\n%s\nwant:\n%s", err, want)
	}
}
