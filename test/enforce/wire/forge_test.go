package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// forgeMark is in what the forger sends, where that has room for it.
const forgeMark = "forged-by-a-pod!"

// TestS103_RandomFrames has a pod send random frames: IP, ARP and neighbour discovery with the addresses of all others,
// tagged, in extension headers and fragments, with bytes changed. Whatever arrives at another pod, at the node or outside
// comes from the addresses of the pod. $WEAVE_NPC_TEST_FRAMES is how many are sent, $WEAVE_NPC_TEST_SEED repeats them.
func TestS103_RandomFrames(t *testing.T) {
	frames, seed := fromEnvironment(t, "WEAVE_NPC_TEST_FRAMES", 10_000), fromEnvironment(t, "WEAVE_NPC_TEST_SEED",
		int(time.Now().UnixNano()))
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, attach := range []lab.Attach{lab.Bridge, lab.Routed} {
			t.Run(attach.String(), func(t *testing.T) {
				t.Parallel()
				t.Logf("seed %d", seed)
				w := e2e.New(t, backend, lab.Config{Attach: attach})
				w.Begin(t, e2e.Do(e2e.Base(), e2e.Policy("shop/p", e2e.CloseWeb)))
				w.Daemons[0].Log.Expect("sends with an address that is not its own")
				newForger(t, w, seed, attach == lab.Bridge).run(t, frames)
			})
		}
	})
}

func fromEnvironment(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("$%s: %v", name, err)
	}
	return n
}

// forger sends random frames from the pod db.
type forger struct {
	*rand.Rand
	w    *e2e.Cluster
	own  []netip.Addr
	mac  net.HardwareAddr
	ips  map[int][]netip.Addr // family -> addresses to choose from
	macs []net.HardwareAddr
	// onBridge is set if frames reach other pods as they are.
	onBridge bool
	// routed is set while a packet is looked at that neighbour discovery ignores, because a router passed it on.
	routed bool
	// joins is set while a packet is looked at that a new link-local address may send before anybody knows it.
	joins bool
}

// nobody is a link-local address that no host has.
const nobody = "fe80::99"

func newForger(t *testing.T, w *e2e.Cluster, seed int, onBridge bool) *forger {
	t.Helper()
	db := w.Hosts["db"]
	local, err := db.LinkLocal("eth0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forger{Rand: rand.New(rand.NewPCG(uint64(seed), 0)), w: w, mac: e2e.HardwareAddr(t, db), onBridge: onBridge,
		own: []netip.Addr{db.Addr4(), db.Addr6(), local.WithZone("")}, ips: map[int][]netip.Addr{}}
	f.macs = []net.HardwareAddr{f.mac, layers.EthernetBroadcast, make(net.HardwareAddr, 6), {0x33, 0x33, 0, 0, 0, 1}, {2, 1, 2, 3, 4, 5}}
	for _, name := range []string{"db", "web", "mon", "api", "out", "n1"} {
		for _, family := range []int{4, 6} {
			f.ips[family] = append(f.ips[family], w.Hosts[name].Addr(family))
		}
	}
	for _, name := range []string{"web", "mon"} {
		f.macs = append(f.macs, e2e.HardwareAddr(t, w.Hosts[name]))
		a, err := w.Hosts[name].LinkLocal("eth0")
		if err != nil {
			t.Fatal(err)
		}
		f.ips[6] = append(f.ips[6], a.WithZone(""))
	}
	f.macs = append(f.macs, f.gateway(t, db))
	f.ips[6] = append(f.ips[6], f.own[2])
	for _, a := range strings.Fields("0.0.0.0 255.255.255.255 224.0.0.1 127.0.0.1 192.0.2.77 10.32.1.99 :: ff02::1 ff02::2 " +
		"ff02::16 ::1 2001:db8::77 fd10:32:0:1::99 " + nobody + " ::ffff:10.32.1.2") {
		a := netip.MustParseAddr(a)
		family := 6
		if a.Is4() {
			family = 4
		}
		f.ips[family] = append(f.ips[family], a)
	}
	return f
}

// gateway returns the hardware address of the node, which the pod has asked for before.
func (f *forger) gateway(t *testing.T, from *lab.Host) net.HardwareAddr {
	t.Helper()
	f.w.Probe(t, from.Name(), lab.Packet{Proto: "icmp", To: f.w.Hosts["out"].Addr4()}, lab.Allowed)
	for line := range strings.Lines(e2e.Run(t, from, "ip", "-4", "neigh", "show", "dev", "eth0")) {
		if _, after, found := strings.Cut(line, "lladdr "); found {
			if a, err := net.ParseMAC(strings.Fields(after)[0]); err == nil {
				return a
			}
		}
	}
	t.Fatal("the pod does not know the node's hardware address")
	return nil
}

func (f *forger) run(t *testing.T, frames int) {
	t.Helper()
	const batch = 2000
	for sent := 0; sent < frames && !t.Failed(); sent += batch {
		captures := map[string]*lab.Capture{}
		for _, name := range []string{"web", "mon", "api", "out"} {
			var err error
			if captures[name], err = f.w.Hosts[name].Capture("eth0"); err != nil {
				t.Fatal(err)
			}
		}
		f.send(t, batch)
		for name, c := range captures {
			time.Sleep(20 * time.Millisecond)
			for _, frame := range c.Frames() {
				if why := f.forged(frame, name); why != "" {
					t.Errorf("at %s, after %d frames: %s\n%x", name, sent, why, frame.Data)
				}
			}
			c.Close()
		}
	}
	f.neighbours(t)
}

// send sends random frames. Those that the kernel refuses are left out.
func (f *forger) send(t *testing.T, count int) {
	t.Helper()
	frames := make([][]byte, count)
	for i := range frames {
		frames[i] = f.frame(t)
	}
	if err := f.w.Hosts["db"].Do(func() error {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for _, frame := range frames {
			_ = unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Index})
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// neighbours fails the test if another pod or, on a bridge, the node has learnt an address of others at the forger's MAC
// address. A veth with routes leads to one pod only, whatever the node learns there. A router may learn an address that
// nobody has, from a solicitation.
func (f *forger) neighbours(t *testing.T) {
	t.Helper()
	if !f.onBridge {
		return
	}
	for _, name := range []string{"n1", "web", "mon"} {
		for line := range strings.Lines(e2e.Run(t, f.w.Hosts[name], "ip", "neigh")) {
			a, err := netip.ParseAddr(strings.Fields(line)[0])
			if err == nil && strings.Contains(line, f.mac.String()) && !slices.Contains(f.own, a) && a.String() != nobody {
				t.Errorf("%s has learnt %s", name, line)
			}
		}
	}
}

// forged returns in words what is forged in a frame that arrived; empty if nothing is.
func (f *forger) forged(frame lab.Frame, at string) string {
	data := frame.Data
	if frame.Outgoing || len(data) < 14 {
		return ""
	}
	byMAC, marked := bytes.Equal(data[6:12], f.mac), bytes.Contains(data, []byte(forgeMark))
	near := f.onBridge && (at == "web" || at == "mon")
	if !marked && (!near || !byMAC) {
		return ""
	}
	packet := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true})
	if answers(packet) || f.redirects(packet) {
		return ""
	}
	if near && !byMAC && !bytes.Equal(data[6:12], f.macs[len(f.macs)-1]) {
		return "a forged MAC address"
	}
	f.joins = false
	if icmp, ok := packet.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok {
		f.joins = slices.Contains([]uint8{131, 132, 133, 143}, icmp.TypeCode.Type())
	}
	var ip gopacket.Layer
	for _, layer := range packet.Layers() {
		if kind := layer.LayerType(); kind == layers.LayerTypeIPv4 || kind == layers.LayerTypeIPv6 {
			// A tunnel's inner packet is data of the outer one. The number of a tunnel's protocol may be a changed byte.
			if ip != nil {
				break
			}
			ip = layer
		}
		if why := f.forgedLayer(layer); why != "" {
			return why
		}
	}
	switch kind := binary.BigEndian.Uint16(data[12:]); kind {
	case unix.ETH_P_IP, unix.ETH_P_IPV6, unix.ETH_P_ARP, 0x88b5:
		return ""
	default:
		return fmt.Sprintf("ethertype %#x", kind)
	}
}

// answers reports whether others answer like this, with what the forger sent to them in it.
func answers(packet gopacket.Packet) bool {
	if icmp, ok := packet.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok {
		return slices.Contains([]uint8{1, 2, 3, 4, layers.ICMPv6TypeEchoReply}, icmp.TypeCode.Type())
	}
	icmp, ok := packet.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
	return ok && slices.Contains([]uint8{layers.ICMPv4TypeEchoReply, layers.ICMPv4TypeDestinationUnreachable,
		layers.ICMPv4TypeTimeExceeded, layers.ICMPv4TypeParameterProblem}, icmp.TypeCode.Type())
}

// redirects reports whether the node answers a packet with a redirect, as it may one from an address
// that nobody has. It quotes the packet.
func (f *forger) redirects(packet gopacket.Packet) bool {
	icmp, is := packet.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6)
	ip, isIP := packet.Layer(layers.LayerTypeIPv6).(*layers.IPv6)
	return is && isIP && icmp.TypeCode.Type() == layers.ICMPv6TypeRedirect && ip.HopLimit == 255 &&
		bytes.Equal(packet.LinkLayer().LinkFlow().Src().Raw(), f.macs[len(f.macs)-1])
}

func (f *forger) forgedLayer(layer gopacket.Layer) string {
	is := func(raw []byte) bool {
		a, ok := netip.AddrFromSlice(raw)
		return ok && slices.Contains(f.own, a)
	}
	switch l := layer.(type) {
	case *layers.IPv4:
		if !is(l.SrcIP.To4()) && !l.SrcIP.Equal(net.IPv4zero) {
			return "IPv4 source " + l.SrcIP.String()
		}
	case *layers.IPv6:
		if !is(l.SrcIP) && !l.SrcIP.Equal(net.IPv6zero) && (!f.joins || l.SrcIP.String() != nobody) {
			return "IPv6 source " + l.SrcIP.String()
		}
		f.routed = l.HopLimit < 255
	case *layers.ARP:
		if !is(l.SourceProtAddress) && !bytes.Equal(l.SourceProtAddress, net.IPv4zero.To4()) ||
			!bytes.Equal(l.SourceHwAddress, f.mac) {
			return fmt.Sprintf("ARP sender %v %v", net.IP(l.SourceProtAddress), net.HardwareAddr(l.SourceHwAddress))
		}
	case *layers.ICMPv6NeighborAdvertisement:
		if !is(l.TargetAddress) && !f.routed {
			return "advertisement of " + l.TargetAddress.String()
		}
	case *layers.ICMPv6RouterAdvertisement, *layers.ICMPv6Redirect:
		if !f.routed {
			return "a router's " + layer.LayerType().String()
		}
	}
	return ""
}
