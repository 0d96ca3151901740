package controller_test

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/enforce/syncer"
	"github.com/weave-npc/weave-npc/test/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/synthetic"
)

// BenchmarkFirstPacket forwards packets that open connections, as local policies and the namespaces that a policy names
// grow. The floor is forwarding the same packets before there is any rule of ours. "isolated-more" is what a packet to
// a pod that is isolated takes more than one to a pod that is not, of pairs of batches that follow each other.
func BenchmarkFirstPacket(b *testing.B) {
	type scene struct {
		cluster synthetic.Cluster
		named   int // namespaces that every policy's peer matches
	}
	for _, backend := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		for _, s := range []scene{
			{fullNode(1, 1), 0}, {fullNode(10, 10), 0}, {fullNode(50, 100), 0}, {fullNode(50, 1_000), 0},
			{fullNode(1, 1), 1}, {fullNode(1, 1), 8}, {fullNode(1, 1), 9}, {fullNode(1, 1), 2_000},
		} {
			r := newRoad(b)
			name := fmt.Sprintf("%s/%s", backend, s.cluster)
			if s.named > 0 {
				name = fmt.Sprintf("%s/named=%d", backend, s.named)
			}
			b.Run(name, func(b *testing.B) {
				cluster.Empty(b)
				floor := r.cost(b, r.addrs(s.cluster.Local, 0), 20)
				m := newModel()
				load(m, s.cluster)
				admit(b, m, s.cluster, s.named)
				r.enforce(b, m, backend)
				var isolated, free, more []float64
				for b.Loop() {
					for range 40 {
						i, f := r.cost(b, r.addrs(s.cluster.Local, 0), 1), r.cost(b, r.addrs(110, 128), 1)
						isolated, free, more = append(isolated, i), append(free, f), append(more, i-f)
					}
				}
				b.ReportMetric(floor, "floor-ns")
				b.ReportMetric(middle(isolated), "isolated-ns")
				b.ReportMetric(middle(free), "free-ns")
				b.ReportMetric(middle(more), "isolated-more-ns")
				b.ReportMetric(middle(isolated)/floor, "x/floor")
				b.ReportMetric(0, "ns/op")
			})
			r.close()
		}
	}
}

// BenchmarkEstablishedPacket forwards packets of a connection. The floors are forwarding them without any rule
// ("x/bare"), and with foreign rules in FORWARD, alternating with ours before them ("x/floor"): one rule that matches
// the state of connections, or all of kube-proxy's.
func BenchmarkEstablishedPacket(b *testing.B) {
	stateAlone := []string{"-A FORWARD -m conntrack --ctstate NEW"}
	for _, backend := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		for _, c := range []synthetic.Cluster{fullNode(1, 1), fullNode(50, 1_000)} {
			for _, scene := range []struct {
				name    string
				others  []string
				replies bool
			}{{"", stateAlone, false}, {"kube-proxy/to-pod/", kubeProxy(), false}, {"kube-proxy/from-pod/", kubeProxy(), true}} {
				r := newRoad(b)
				b.Run(fmt.Sprintf("%s/%s%s", backend, scene.name, c), func(b *testing.B) { r.compare(b, backend, c, scene.others, scene.replies) })
				r.close()
			}
		}
	}
}

// kubeProxy is what kube-proxy writes for packets that are forwarded, in its iptables mode and without Services.
func kubeProxy() []string {
	return []string{
		"-N KUBE-FORWARD", "-N KUBE-SERVICES", "-N KUBE-EXTERNAL-SERVICES", "-N KUBE-PROXY-FIREWALL",
		"-A FORWARD -m conntrack --ctstate NEW -m comment --comment load-balancer-firewall -j KUBE-PROXY-FIREWALL",
		"-A FORWARD -m comment --comment forwarding-rules -j KUBE-FORWARD",
		"-A FORWARD -m conntrack --ctstate NEW -m comment --comment service-portals -j KUBE-SERVICES",
		"-A FORWARD -m conntrack --ctstate NEW -m comment --comment externally-visible-service-portals -j KUBE-EXTERNAL-SERVICES",
		"-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP",
		"-A KUBE-FORWARD -m comment --comment forwarding-rules -m mark --mark 0x4000/0x4000 -j ACCEPT",
		"-A KUBE-FORWARD -m comment --comment forwarding-conntrack-rule -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
	}
}

// BenchmarkRuleOfEndedConnections measures what the rule costs a packet by which connections end: that of 50 of them,
// divided.
func BenchmarkRuleOfEndedConnections(b *testing.B) {
	const copies = 50
	for _, backend := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		r := newRoad(b)
		b.Run(string(backend), func(b *testing.B) {
			cluster.Empty(b)
			rule := func(args string) { cluster.Command(b, "iptables-"+string(backend), strings.Fields(args)...) }
			rule("-A FORWARD -m conntrack --ctstate NEW")
			rule("-N COPIES")
			for range copies {
				rule("-A COPIES " + rules.TerminateMark(0x2000).ToNode().Match + " -j DROP")
			}
			var costs []float64
			for b.Loop() {
				for range 10 {
					without := r.flowing(b, false)
					rule("-I FORWARD 1 -j COPIES")
					costs = append(costs, (r.flowing(b, false)-without)/copies)
					rule("-D FORWARD 1")
				}
			}
			b.ReportMetric(middle(costs), "rule-ns")
			b.ReportMetric(0, "ns/op")
		})
		r.close()
	}
}

// compare measures what packets of a connection to a pod take, or their replies, with and without us before others'
// rules.
func (r *road) compare(b *testing.B, backend iptables.Backend, c synthetic.Cluster, others []string, replies bool) {
	b.Helper()
	rule := func(args string) {
		b.Helper()
		cluster.Command(b, "iptables-"+string(backend), strings.Fields(args)...)
	}
	cluster.Empty(b)
	bare := r.flowing(b, replies)
	for _, other := range others {
		rule(other)
	}
	m := newModel()
	load(m, c)
	admit(b, m, c, 0)
	r.enforce(b, m, backend)
	var ours, floor, ratios []float64
	for b.Loop() {
		for range 10 {
			rule("-D FORWARD 1")
			without := r.flowing(b, replies)
			rule("-I FORWARD 1 -j WEAVE-NPC-FORWARD")
			with := r.flowing(b, replies)
			ours, floor, ratios = append(ours, with), append(floor, without), append(ratios, with/without)
		}
	}
	b.ReportMetric(middle(ours), "established-ns")
	b.ReportMetric(middle(floor), "floor-ns")
	b.ReportMetric(middle(ours)/bare, "x/bare")
	b.ReportMetric(middle(ratios), "x/floor")
	b.ReportMetric(0, "ns/op")
}

// admit has every namespace with local pods let in what the road sends, from addresses outside or from pods of the
// named namespaces; pods of one more namespace are not isolated.
func admit(b *testing.B, m *controller.Controller, c synthetic.Cluster, named int) {
	spec := "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 198.51.0.0/16}}]}]}"
	if named > 0 {
		spec = `{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {named: "yes"}}}]}]}`
	}
	for i := range c.Namespaces {
		m.SetPolicy(fixture.Policy(b, synthetic.NamespaceName(i)+"/admit", spec))
	}
	for i := range named {
		m.SetNamespace(fixture.Namespace(fmt.Sprintf("named-%04d named=yes", i)))
		m.SetPod(fixture.Pod(fmt.Sprintf("named-%04d/client node2 198.51.%d.%d", i, 100+i>>8, i&255)))
	}
	m.SetNamespace(fixture.Namespace("free"))
	for i := range 110 {
		m.SetPod(fixture.Pod(fmt.Sprintf("free/%d %s 10.32.1.%d", i, synthetic.Node, i+2+128)))
	}
}

// road leads from a host outside through this namespace, which is the node, to pods that drop what they get.
type road struct {
	sender *own
	pods   *own
	port   uint32
}

// own is a network namespace with a raw socket.
type own struct {
	netns, socket int
}

func newRoad(b *testing.B) *road {
	b.Helper()
	r := &road{sender: newOwn(b), pods: newOwn(b)}
	r.link(b, r.sender, "out0", "198.51.255.1/16")
	r.link(b, r.pods, "cni0", "10.32.0.1/16")
	cluster.Command(b, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0")
	return r
}

// newOwn makes a network namespace, which goes with its descriptors.
func newOwn(b *testing.B) *own {
	b.Helper()
	o := &own{}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with this function
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			o.netns, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		if err == nil {
			o.socket, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		}
		failed <- err
	}()
	if err := <-failed; err != nil {
		b.Fatal(err)
	}
	return o
}

// link connects a namespace with ours. Neither side asks for link-layer addresses: all packets are for the other end.
func (r *road) link(b *testing.B, o *own, name, addr string) {
	b.Helper()
	must := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	same := net.HardwareAddr{2, 0, 0, 0, 0, 1} // the other end's too: without ARP a packet is sent to one's own address
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: same}, PeerName: "eth0",
		PeerHardwareAddr: same, PeerNamespace: netlink.NsFd(o.netns)}))
	setUp := func(h *netlink.Handle, name, addr string) netlink.Link {
		l, err := h.LinkByName(name)
		must(err)
		a, err := netlink.ParseAddr(addr)
		must(err)
		must(h.LinkSetARPOff(l))
		must(h.AddrAdd(l, a))
		must(h.LinkSetUp(l))
		return l
	}
	here, err := netlink.NewHandle()
	must(err)
	defer here.Close()
	there, err := netlink.NewHandleAt(netns.NsHandle(o.netns))
	must(err)
	defer there.Close()
	setUp(here, name, addr)
	l := setUp(there, "eth0", "10.255.255.1/32")
	must(there.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Scope: netlink.SCOPE_LINK,
		Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}}))
}

func (r *road) close() {
	for _, o := range []*own{r.sender, r.pods} {
		_ = unix.Close(o.socket)
		_ = unix.Close(o.netns)
	}
	for _, name := range []string{"out0", "cni0"} {
		if l, err := netlink.LinkByName(name); err == nil {
			_ = netlink.LinkDel(l)
		}
	}
}

// enforce has a kernel hold what a model wants.
func (r *road) enforce(b *testing.B, m *controller.Controller, backend iptables.Backend) {
	b.Helper()
	s, err := syncer.New(m, npc.Families[:], backend, syncer.NewMetrics(prometheus.NewRegistry(), m, npc.Families[:]), slog.New(slog.DiscardHandler),
		func(enforce.InvalidPolicy) {})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	if errs := s.Sync(b.Context(), false); len(errs) > 0 {
		b.Fatal(errs)
	}
}

// pods are addresses of pods.
func (r *road) addrs(n, first int) []netip.Addr {
	var out []netip.Addr
	for i := range n {
		out = append(out, netip.AddrFrom4([4]byte{10, 32, 1, byte(first + i + 2)}))
	}
	return out
}

// packet is one of UDP from a pod of a named namespace, which is also outside of the cluster if there is no such pod.
func packet(from, to netip.Addr, fromPort, toPort uint16) []byte {
	p := make([]byte, 32)
	p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	copy(p[12:], from.AsSlice())
	copy(p[16:], to.AsSlice())
	binary.BigEndian.PutUint16(p[20:], fromPort)
	binary.BigEndian.PutUint16(p[22:], toPort)
	binary.BigEndian.PutUint16(p[24:], uint16(len(p)-20))
	return p
}

func (o *own) send(b *testing.B, p []byte) {
	if err := unix.Sendto(o.socket, p, 0, &unix.SockaddrInet4{Addr: [4]byte(p[16:20])}); err != nil {
		b.Helper()
		b.Fatal(err)
	}
}

const batch = 2_000

// cost is what it takes to forward a packet that opens a connection to one of the pods, sending included, in
// nanoseconds: the median of batches.
func (r *road) cost(b *testing.B, to []netip.Addr, batches int) float64 {
	b.Helper()
	from := netip.MustParseAddr("198.51.100.0")
	packets := make([][]byte, batch)
	return median(batches, func() {
		for i := range packets {
			r.port++
			packets[i] = packet(from, to[i%len(to)], uint16(r.port), uint16(1024+r.port>>16))
		}
		if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
			b.Fatal(err)
		}
	}, func() {
		for _, p := range packets {
			r.sender.send(b, p)
		}
	})
}

// flowing is what it takes to forward a packet of a connection to a pod, or a reply.
func (r *road) flowing(b *testing.B, replies bool) float64 {
	b.Helper()
	r.port++
	client, pod := netip.MustParseAddr("198.51.100.0"), r.addrs(1, 0)[0]
	there, back := packet(client, pod, uint16(r.port), 9), packet(pod, client, 9, uint16(r.port))
	r.sender.send(b, there)
	r.pods.send(b, back)
	from, p := r.sender, there
	if replies {
		from, p = r.pods, back
	}
	return median(20, func() {}, func() {
		for range batch {
			from.send(b, p)
		}
	})
}

// median is how long an element of a batch keeps the processor, in nanoseconds. A packet is forwarded by the thread
// that sends it; what else the machine does meanwhile does not count.
func median(batches int, prepare, run func()) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took []float64
	for range batches {
		prepare()
		start := threadTime()
		run()
		took = append(took, float64(threadTime()-start)/batch)
	}
	return middle(took)
}

// threadTime is the time that the thread has had a processor for.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // every kernel has that clock
	}
	return time.Duration(t.Nano())
}

// middle is the median.
func middle(l []float64) float64 {
	slices.Sort(l)
	return l[len(l)/2]
}
