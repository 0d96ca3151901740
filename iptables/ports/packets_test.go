package ports_test

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/iptables/ports"
	"github.com/weave-npc/weave-npc/test/await"
)

// wire has links of a node to pods in another network namespace, and counts what passes the tables.
type wire struct {
	testing.TB
	elsewhere netns.NsHandle
	sockets   map[string]int // by interface, at the pod's end
	index     map[string]int
}

// rounds is how often each frame is sent.
const rounds = 10

func newWire(t testing.TB) *wire {
	t.Helper()
	w := &wire{TB: t, sockets: map[string]int{}, index: map[string]int{}}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	here, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	if w.elsewhere, err = netns.New(); err != nil {
		t.Fatal(err)
	}
	w.quiet()
	if err := netns.Set(here); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.elsewhere.Close() })
	return w
}

// quiet keeps the interfaces of the current namespace from sending anything by themselves.
func (w *wire) quiet() {
	w.Helper()
	for _, name := range []string{"all", "default"} {
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *wire) add(l netlink.Link) netlink.Link {
	w.Helper()
	if err := netlink.LinkAdd(l); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = netlink.LinkDel(l) })
	if err := netlink.LinkSetUp(l); err != nil {
		w.Fatal(err)
	}
	w.index[l.Attrs().Name] = l.Attrs().Index
	return l
}

// link adds a veth to a pod, and to a bridge unless that is nil.
func (w *wire) link(name string, bridge netlink.Link) {
	w.Helper()
	attrs := netlink.LinkAttrs{Name: name}
	if bridge != nil {
		attrs.MasterIndex = bridge.Attrs().Index
	}
	w.add(&netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerNamespace: netlink.NsFd(w.elsewhere)})
	w.inPods(func() error {
		peer, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(peer); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		w.Cleanup(func() { _ = unix.Close(fd) })
		w.sockets[name] = fd
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: peer.Attrs().Index})
	})
}

func (w *wire) inPods(f func() error) {
	w.Helper()
	here, err := netns.Get()
	if err != nil {
		w.Fatal(err)
	}
	defer here.Close()
	if err := netns.Set(w.elsewhere); err != nil {
		w.Fatal(err)
	}
	err = f()
	if back := netns.Set(here); back != nil || err != nil {
		w.Fatal(back, err)
	}
}

// count adds chains that count what arrives before the table of a family, and what has passed it.
func (w *wire) count(family string, priority int) {
	w.Helper()
	nft(w, "add table "+family+" probe")
	w.Cleanup(func() { nft(w, "delete table "+family+" probe") })
	for name, at := range map[string]int{"seen": -500, "passed": priority} {
		nft(w, fmt.Sprintf("add counter %[1]s probe %[2]s; "+
			"add chain %[1]s probe %[2]s { type filter hook prerouting priority %[3]d; }; "+
			"add rule %[1]s probe %[2]s iif != lo counter name %[2]s", family, name, at))
	}
}

// passes sends a frame some times and returns how often it passed.
func (w *wire) passes(family, name string, frame []byte) int {
	w.Helper()
	before := w.counted(family)
	for range rounds {
		if _, err := unix.Write(w.sockets[name], frame); err != nil {
			w.Fatal(err)
		}
	}
	for deadline := time.Now().Add(await.Scaled(5 * time.Second)); ; time.Sleep(time.Millisecond) {
		now := w.counted(family)
		if now["seen"]-before["seen"] == rounds {
			return now["passed"] - before["passed"]
		}
		if time.Now().After(deadline) {
			w.Fatalf("of %d frames arrive %d: %x", rounds, now["seen"]-before["seen"], frame)
		}
	}
}

// counted returns the values of the counters.
func (w *wire) counted(family string) map[string]int {
	w.Helper()
	objects, err := new(nftables.Conn).GetObjects(&nftables.Table{Name: "probe", Family: families()[family]})
	if err != nil {
		w.Fatal(err)
	}
	values := map[string]int{}
	for _, o := range objects {
		if c, ok := o.(*nftables.CounterObj); ok {
			values[c.Name] = int(c.Packets)
		}
	}
	return values
}

func families() map[string]nftables.TableFamily {
	return map[string]nftables.TableFamily{"bridge": nftables.TableFamilyBridge, "inet": nftables.TableFamilyINet}
}

// expect sends frames and expects how many of each pass.
func (w *wire) expect(family, name string, frames map[string][]byte, want int) {
	w.Helper()
	for what, f := range frames {
		if got := w.passes(family, name, f); got != want {
			w.Errorf("%s: %d of %d passed, want %d\n%x", what, got, rounds, want, f)
		}
	}
}

// merged joins maps of frames.
func merged(all ...map[string][]byte) map[string][]byte {
	joined := map[string][]byte{}
	for _, m := range all {
		maps.Copy(joined, m)
	}
	return joined
}

// bind adds a bound pod to a state.
func bind(s *ports.State, port int, e end, bridged bool) {
	mac := e.mac
	if bridged {
		s.Bridged = append(s.Bridged, port)
	} else {
		s.Routed, mac = append(s.Routed, port), ports.MAC{}
	}
	s.Bound = append(s.Bound, port)
	for _, a := range []netip.Addr{e.v4, e.v6, e.linkLocal} {
		s.Sources[ports.Source{Port: port, MAC: mac, Addr: a}] = "shop/" + e.v4.String()
	}
}

// modes has how many of the frames with a forged source pass in each mode.
func modes() map[ports.Mode]int {
	return map[ports.Mode]int{ports.Off: rounds, ports.Audit: rounds, ports.On: 0}
}

func (w *wire) newBridge() netlink.Link {
	w.Helper()
	off := false
	return w.add(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}, MulticastSnooping: &off})
}

// TestSourcesOnABridge sends frames from pods on a bridge.
func TestSourcesOnABridge(t *testing.T) {
	w := newWire(t)
	bridge := w.newBridge()
	for _, name := range []string{"own", "victim", "new", "young", "exempt"} {
		w.link(name, bridge)
	}
	w.count("bridge", -390)
	own, victim, fresh := endOf(0), endOf(1), endOf(2)
	for mode, forgedPass := range modes() {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			w.TB = t
			s := ports.State{Mode: mode, Sources: map[ports.Source]string{}}
			bind(&s, w.index["own"], own, true)
			bind(&s, w.index["victim"], victim, true)
			s.Bridged = append(s.Bridged, w.index["young"], w.index["exempt"])
			s.Exempt = []int{w.index["exempt"], w.index["br0"], 1}
			reserved := reserve(t, &s, own, endOf(3))
			write(t, s)
			for _, port := range []string{"own", "new", "young"} {
				w.expect("bridge", port, reserved, reservedPass(mode))
			}
			w.expect("bridge", "exempt", reserved, rounds)
			forgeries := merged(forgedIP(t, own, victim), forgedOnBridge(t, own, victim))
			w.expect("bridge", "own", merged(honest(t, own), honestOnBridge(t, own)), rounds)
			w.expect("bridge", "own", forgeries, forgedPass)
			w.expect("bridge", "exempt", forgeries, rounds)
			for _, port := range []string{"new", "young"} { // not known yet
				w.expect("bridge", port, merged(honest(t, fresh), honestOnBridge(t, fresh)), rounds)
				w.expect("bridge", port, taken(t, fresh, victim), forgedPass)
			}
			w.expect("bridge", "own", map[string][]byte{
				"a VLAN tag": tagged(0x8100, udp(t, own.mac, own.v4, 1, 2)), "a service tag": tagged(0x88a8, tcp(t, own.mac, own.v6)),
				"router advertisement": icmp6(t, own.mac, own.linkLocal, 134, 255, make([]byte, 12)...),
				"redirect":             icmp6(t, own.mac, own.linkLocal, 137, 255, make([]byte, 36)...),
				"a hidden type":        fragment6(t, own.mac, own.v6, 58, 0),
			}, 0)
		})
	}
}

// taken returns frames of a pod whose port is not bound, from sources that are bound to another.
func taken(t testing.TB, e, victim end) map[string][]byte {
	return map[string][]byte{
		"address":                  udp(t, e.mac, victim.v4, 1, 2),
		"IPv6 address":             tcp(t, e.mac, victim.v6),
		"link-local":               icmp6(t, e.mac, victim.linkLocal, 128, 64, 0, 1, 0, 1),
		"MAC address":              udp(t, victim.mac, e.v4, 1, 2),
		"MAC address, 802.3":       other(victim.mac, 60),
		"ARP":                      arp(t, e.mac, e.mac, victim.v4, 2),
		"ARP, MAC address":         arp(t, e.mac, victim.mac, e.v4, 2),
		"neighbour advertisement":  neighbour(t, e.mac, e.v6, 136, victim.v6),
		"neighbour solicitation":   neighbour(t, e.mac, victim.v6, 135, e.v6),
		"duplicate detection":      neighbour(t, e.mac, netip.IPv6Unspecified(), 135, victim.v6),
		"fragment of IPv4":         fragment4(t, e.mac, victim.v4, 2),
		"later fragment of ICMPv6": fragment6(t, e.mac, victim.v6, 58, 2, make([]byte, 16)...),
	}
}

// TestSourcesWithRoutes sends packets from pods whose interfaces are not on a bridge.
func TestSourcesWithRoutes(t *testing.T) {
	w := newWire(t)
	for _, name := range []string{"own", "victim", "new", "exempt"} {
		w.link(name, nil)
	}
	w.count("inet", -440)
	own, victim, fresh := endOf(0), endOf(1), endOf(2)
	for mode, forgedPass := range modes() {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			w.TB = t
			s := ports.State{Mode: mode, Exempt: []int{w.index["exempt"], 1}, Sources: map[ports.Source]string{}}
			bind(&s, w.index["own"], own, false)
			bind(&s, w.index["victim"], victim, false)
			reserved := reserve(t, &s, own, endOf(3))
			write(t, s)
			w.expect("inet", "own", reserved, reservedPass(mode))
			w.expect("inet", "new", reserved, reservedPass(mode))
			w.expect("inet", "exempt", reserved, rounds)
			w.expect("inet", "own", honest(t, own), rounds)
			forgeries := forgedIP(t, own, victim)
			w.expect("inet", "own", forgeries, forgedPass)
			w.expect("inet", "exempt", forgeries, rounds)
			w.expect("inet", "new", honest(t, fresh), rounds)
			w.expect("inet", "new", map[string][]byte{"address": udp(t, fresh.mac, victim.v4, 1, 2),
				"IPv6 address": tcp(t, fresh.mac, victim.v6)}, forgedPass)
		})
	}
}

// TestEtherTypes checks which frames pass that are neither IP nor ARP.
func TestEtherTypes(t *testing.T) {
	w := newWire(t)
	w.link("own", w.newBridge())
	w.count("bridge", -390)
	own, victim := endOf(0), endOf(1)
	some := map[string][]byte{"LLDP": other(own.mac, 0x88cc)}
	rest := map[string][]byte{"EAPOL": other(own.mac, 0x888e), "MPLS": other(own.mac, 0x8847), "PPPoE": other(own.mac, 0x8864),
		"802.3": other(own.mac, 60), "the longest 802.3": other(own.mac, 1500)}
	tags := map[string][]byte{"tagged": tagged(0x8100, udp(t, own.mac, own.v4, 1, 2)), "tagged ARP": tagged(0x88a8, arp(t, own.mac, own.mac, own.v4, 1))}
	for mode, forgedPass := range modes() {
		for _, only := range []bool{false, true} {
			t.Run(fmt.Sprint(mode, only), func(t *testing.T) {
				w.TB = t
				s := ports.State{Mode: mode, OnlyTypes: only, AllowVLAN: only, Types: []uint16{0x88cc}, Sources: map[ports.Source]string{}}
				bind(&s, w.index["own"], own, true)
				write(t, s)
				w.expect("bridge", "own", merged(honest(t, own), some), rounds)
				w.expect("bridge", "own", map[string][]byte{"LLDP": other(victim.mac, 0x88cc)}, forgedPass)
				passes := map[bool]int{true: rounds}
				w.expect("bridge", "own", rest, passes[!only])
				w.expect("bridge", "own", tags, passes[s.AllowVLAN])
				if s.AllowVLAN {
					w.expect("bridge", "own", map[string][]byte{"tagged": tagged(0x8100, udp(t, victim.mac, own.v4, 1, 2))}, forgedPass)
				}
			})
		}
	}
}

// TestForgeriesAreNoted checks what is reported about forged sources.
func TestForgeriesAreNoted(t *testing.T) {
	w := newWire(t)
	w.link("own", w.newBridge())
	w.link("routed", nil)
	w.count("bridge", -390)
	w.count("inet", -440)
	own, victim, routed := endOf(0), endOf(1), endOf(2)
	s := ports.State{Mode: ports.On, Exempt: []int{1, w.index["br0"]}, Sources: map[ports.Source]string{}}
	bind(&s, w.index["own"], own, true)
	bind(&s, w.index["routed"], routed, false)
	write(t, ports.State{})
	write(t, s)
	expected := map[ports.Forgery]bool{}
	port, none := w.index["own"], netip.IPv6Unspecified()
	for _, f := range []struct {
		kind  ports.Reason
		mac   ports.MAC
		addr  netip.Addr
		frame []byte
	}{
		{ports.Reason("ip"), own.mac, victim.v4, udp(t, own.mac, victim.v4, 1, 2)},
		{ports.Reason("ip"), victim.mac, own.v6, udp(t, victim.mac, own.v6, 1, 2)},
		{ports.Reason("arp"), own.mac, victim.v4, arp(t, own.mac, own.mac, victim.v4, 2)},
		{ports.Reason("nd"), own.mac, victim.v6, neighbour(t, own.mac, own.v6, 136, victim.v6)},
		{ports.Reason("nd"), victim.mac, victim.v6, neighbour(t, victim.mac, none, 135, victim.v6)},
		{ports.Reason("mac"), victim.mac, netip.Addr{}, other(victim.mac, 0x88cc)},
	} {
		w.passes("bridge", "own", f.frame)
		expected[ports.Forgery{Source: ports.Source{Port: port, MAC: f.mac, Addr: f.addr}, Kind: f.kind}] = true
	}
	for _, a := range []netip.Addr{victim.v4, victim.v6} {
		w.passes("inet", "routed", udp(t, own.mac, a, 1, 2))
		expected[ports.Forgery{Source: ports.Source{Port: w.index["routed"], Addr: a}, Kind: ports.Reason("ip")}] = true
	}
	list, err := tables.Forged()
	if err != nil {
		t.Fatal(err)
	}
	found := map[ports.Forgery]bool{}
	for _, f := range list {
		found[f] = true
	}
	if !maps.Equal(found, expected) || len(list) != len(found) {
		t.Errorf("noted: %v, want %v", list, expected)
	}
	counts, err := tables.Dropped()
	if err != nil {
		t.Fatal(err)
	}
	if want := map[ports.Reason]uint64{ports.Reason("ip"): 4 * rounds, ports.Reason("arp"): rounds, ports.Reason("nd"): 2 * rounds, ports.Reason("mac"): rounds}; !counted(counts, want) {
		t.Errorf("counted: %v, want %v", counts, want)
	}
	holds(t, "after forgeries", s, true)
}

func counted(have, want map[ports.Reason]uint64) bool {
	for _, r := range ports.Reasons() {
		if have[r] != want[r] {
			return false
		}
	}
	return true
}

// TestAFullSetOfForgeriesDropsTheRest sends more forged sources than are remembered.
func TestAFullSetOfForgeriesDropsTheRest(t *testing.T) {
	w := newWire(t)
	w.link("own", w.newBridge())
	w.count("bridge", -390)
	own := endOf(0)
	s := ports.State{Mode: ports.On, Sources: map[ports.Source]string{}}
	bind(&s, w.index["own"], own, true)
	write(t, ports.State{})
	write(t, s)
	forgery := func(i int) []byte { // with a MAC address of its own, so that no other set has it
		hi, lo := byte(i>>8), byte(i)
		return udp(t, ports.MAC{2, 1, 0, 0, hi, lo}, netip.AddrFrom4([4]byte{192, 0, hi, lo}), 1, 2)
	}
	for i := range 3000 {
		if _, err := unix.Write(w.sockets["own"], forgery(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.passes("bridge", "own", forgery(4000)); n != 0 {
		t.Errorf("%d frames passed", n)
	}
	if n := w.passes("bridge", "own", udp(t, own.mac, own.v4, 1, 2)); n != rounds {
		t.Errorf("%d honest frames passed", n)
	}
	list, err := tables.Forged()
	if err != nil || len(list) != 1024 {
		t.Errorf("%d noted, %v", len(list), err)
	}
}
