package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// forgedPolicies isolate web, which two peers of db's reach on port 53, and which db itself reaches on port 54.
func forgedPolicies() e2e.Change {
	return e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress], ingress: [
		{from: [{ipBlock: {cidr: 192.0.2.0/24}}, {ipBlock: {cidr: "2001:db8::/32"}},
			{namespaceSelector: {}, podSelector: {matchLabels: {app: mon}}}], ports: [{port: 53, protocol: UDP}]},
		{from: [{namespaceSelector: {}}], ports: [{port: 54, protocol: UDP}]}]}`)
}

// arrivesFrom reports whether another host gets a datagram that a host sends to port 53 with a source.
func arrivesFrom(t *testing.T, from, to *lab.Host, source, destination netip.Addr) bool {
	t.Helper()
	capture, err := to.Capture("eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer capture.Close()
	forged, marker := []byte("forged "+uuid.NewString()), []byte("marker "+uuid.NewString())
	own := from.Addr(4)
	if destination.Is6() {
		own = from.Addr(6)
	}
	for _, packet := range [][]byte{e2e.Craft(t, source, destination, 64, e2e.UDP(53, string(forged))...),
		e2e.Craft(t, own, destination, 64, e2e.UDP(54, string(marker))...)} {
		if err := from.SendIP(packet); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Timeout)
	defer cancel()
	seen := false
	if _, err := capture.Await(ctx, func(f lab.Frame) bool {
		seen = seen || !f.Outgoing && bytes.HasSuffix(f.Data, forged)
		return !f.Outgoing && bytes.HasSuffix(f.Data, marker)
	}); err != nil {
		t.Fatal(err)
	}
	return seen
}

// TestS103_NobodySendsAsAnother has a pod send as a peer that is allowed, and as one outside of the cluster, to a pod of
// its own node: past the bridge and by routes, in each mode.
func TestS103_NobodySendsAsAnother(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, attach := range []lab.Attach{lab.Bridge, lab.Routed} {
			for mode, arrives := range map[string]bool{"off": true, "audit": true, "on": false} {
				t.Run(attach.String()+" "+mode, func(t *testing.T) {
					w := e2e.New(t, backend, lab.Config{Attach: attach})
					w.Begin(t, e2e.Do(e2e.Base(), forgedPolicies()), "--bind-sources="+mode)
					if mode != "off" {
						w.Daemons[0].Log.Expect("sends with an address that is not its own")
					}
					db, web, mon := w.Hosts["db"], w.Hosts["web"], w.Hosts["mon"]
					e2e.EachFamily(func(family int) {
						outside := netip.MustParseAddr("192.0.2.9")
						if family == 6 {
							outside = netip.MustParseAddr("2001:db8::9")
						}
						for name, source := range map[string]netip.Addr{"a peer": mon.Addr(family), "outside": outside} {
							if got := arrivesFrom(t, db, web, source, web.Addr(family)); got != arrives {
								t.Errorf("IPv%d, as %s: it arrives: %t\n%s", family, name, got,
									e2e.Run(t, w.Node("node1").Host, "nft", "list", "ruleset"))
							}
						}
						if !arrivesFrom(t, mon, web, mon.Addr(family), web.Addr(family)) {
							t.Errorf("IPv%d: the peer itself does not arrive", family)
						}
					})
					if mode != "off" {
						w.Daemons[0].AwaitLine(t, 0, "sends with an address that is not its own")
					}
				})
			}
		}
	})
}

// TestS104_APortKeepsItsPod has a pod give itself addresses: that of a peer, and one that no object has. Its own address
// stays bound when the runtime takes it from the interface, and when weave-npc is started again.
func TestS104_APortKeepsItsPod(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, attach := range []lab.Attach{lab.Bridge, lab.Routed} {
			t.Run(attach.String(), func(t *testing.T) {
				w := e2e.New(t, backend, lab.Config{Attach: attach})
				w.Begin(t, e2e.Do(e2e.Base(), forgedPolicies()), "--bind-prefixes=2001:db8:1::/48")
				w.Daemons[0].Log.Expect("no object lists")
				said := w.Daemons[0].Log
				said.Expect("sends with an address that is not its own")
				db, web, mon := w.Hosts["db"], w.Hosts["web"], w.Hosts["mon"]
				taken := func(bits string, addrs ...netip.Addr) {
					for _, a := range addrs {
						e2e.Run(t, db, "ip", "addr", "add", a.String()+bits, "dev", "eth0", "nodad")
					}
				}
				taken("/128", mon.Addr6(), netip.MustParseAddr("2001:db8::9"), netip.MustParseAddr("2001:db8:1::9"))
				taken("/32", mon.Addr4(), netip.MustParseAddr("192.0.2.9"))
				expect := func(when string) {
					t.Helper()
					for _, source := range []netip.Addr{mon.Addr4(), mon.Addr6(), netip.MustParseAddr("192.0.2.9"),
						netip.MustParseAddr("2001:db8::9")} {
						to := web.Addr4()
						if source.Is6() {
							to = web.Addr6()
						}
						if arrivesFrom(t, db, web, source, to) {
							t.Errorf("%s, as %s: it arrives", when, source)
						}
					}
				}
				expect("with the addresses")
				awaitSource(t, w, "2001:db8:1::9")
				if !arrivesFrom(t, db, web, netip.MustParseAddr("2001:db8:1::9"), web.Addr6()) {
					t.Error("an address of --bind-prefixes does not arrive")
				}
				w.Daemons[0].Kill(t)
				expect("while weave-npc does not run")
				w.Daemons[0].Start(t)
				w.Daemons[0].AwaitLine(t, 0, "policies are enforced")
				expect("after a restart")
			})
		}
	})
}

// awaitSource waits until an address is bound on the first node.
func awaitSource(t *testing.T, w *e2e.Cluster, addr string) {
	t.Helper()
	var rules string
	await.Within(t, e2e.Converged, func() bool {
		rules = e2e.Run(t, w.Node("node1").Host, "nft", "list", "ruleset")
		return strings.Contains(rules, addr)
	}, func() string { return addr + " is not bound:\n" + rules })
}

// TestS107_OnlyIPPassesABridge sends frames of other types, and an IPv4 packet in a frame with a length.
func TestS107_OnlyIPPassesABridge(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{Attach: lab.Bridge})
		w.Begin(t, e2e.Base(), "--allow-ethertypes=0x88cc")
		db, web := w.Hosts["db"], w.Hosts["web"]
		expect := func(when string, isolated bool) {
			t.Helper()
			for name, kind := range map[string]uint16{"PPPoE": 0x8864, "MPLS": 0x8847, "EAPOL": 0x888e, "802.3": 60, "LLDP": 0x88cc} {
				frame := slices.Concat(e2e.HardwareAddr(t, web), e2e.HardwareAddr(t, db),
					binary.BigEndian.AppendUint16(nil, kind), bytes.Repeat([]byte{0xaa}, 40), []byte(name+" "+when))
				want := !isolated || name == "LLDP"
				if got := announces(t, db, web, []byte(name+" "+when), frame); got != want {
					t.Errorf("%s, %s: it arrives: %t", when, name, got)
				}
			}
		}
		expect("without a policy", false)
		w.Apply(t, w.Objects(e2e.Do(e2e.Base(), e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: api}}}`),
			e2e.Policy("ops/p", `{podSelector: {matchLabels: {app: mon}}}`))))
		await.Within(t, e2e.Converged, func() bool {
			return strings.Contains(e2e.Run(t, w.Node("node1").Host, "nft", "list", "table", "bridge", "weave-npc"), "@types")
		}, func() string { return "the types are not restricted" })
		expect("while a pod is isolated", true)
	})
}

// knowsNeighbour gives a host the hardware address of another one's IPv6 address. Without it, a sender whose neighbour
// discovery is dropped has its packets rejected by its own kernel after three seconds.
func knowsNeighbour(t *testing.T, from, to *lab.Host) {
	t.Helper()
	e2e.Run(t, from, "ip", "-6", "neigh", "replace", to.Addr6().String(), "dev", "eth0", "nud", "permanent",
		"lladdr", e2e.HardwareAddr(t, to).String())
}

// TestS104_AFamilyThatNoObjectLists has an isolated pod whose status lists its IPv4 address only.
func TestS104_AFamilyThatNoObjectLists(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		for _, attach := range []lab.Attach{lab.Bridge, lab.Routed} {
			t.Run(attach.String(), func(t *testing.T) {
				w := e2e.New(t, backend, lab.Config{Attach: attach})
				lists4 := func(_ *e2e.Cluster, p *corev1.Pod) { p.Status.PodIPs = p.Status.PodIPs[:1] }
				w.Begin(t, e2e.Do(e2e.Base(), e2e.Pod("shop/web", e2e.Labelled("app=web"), lists4),
					e2e.Policy("shop/p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`)))
				for _, d := range w.Daemons {
					d.Log.Expect("no object lists")
					d.Log.Expect("unlisted")
				}
				pairs := [][2]string{{"db", "web"}, {"web", "db"}, {"api", "web"}, {"web", "api"}}
				if attach == lab.Bridge {
					for _, pair := range pairs {
						knowsNeighbour(t, w.Hosts[pair[0]], w.Hosts[pair[1]])
					}
				}
				closed := func(when string) {
					t.Helper()
					for _, pair := range pairs {
						if attach == lab.Routed && pair[0] == "web" {
							continue // its neighbour discovery is dropped too, so that it sends nothing
						}
						for _, proto := range []string{"tcp", "udp"} {
							port := map[string]uint16{"tcp": 80, "udp": 53}[proto]
							w.Probe(t, pair[0], lab.Packet{Proto: proto, To: w.Hosts[pair[1]].Addr6(), Port: port}, lab.Dropped)
						}
					}
					w.Probe(t, "db", lab.Packet{Proto: "tcp", To: w.Hosts["mon"].Addr6(), Port: 80}, lab.Allowed)
				}
				w.Daemons[0].AwaitLine(t, 0, w.Hosts["web"].Addr6().String())
				closed("at first")
				w.Daemons[0].Kill(t)
				w.Daemons[0].Start(t)
				w.Daemons[0].AwaitReady(t)
				closed("after a restart")
			})
		}
	})
}
