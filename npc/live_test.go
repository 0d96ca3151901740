package npc_test

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/walk"
)

// families are both.
var families = [...]npc.Family{npc.IPv4, npc.IPv6}

// starter makes a world in a fresh kernel.
type starter func(t *testing.T, configure ...func(*npc.Config)) *world

// onEveryKernel runs a test on paper, and with a syncer on a real kernel on both backends.
func onEveryKernel(t *testing.T, test func(t *testing.T, start starter)) {
	t.Run("paper", func(t *testing.T) { test(t, newWorld) })
	onEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		test(t, func(t *testing.T, configure ...func(*npc.Config)) *world { return newLiveWorld(t, b, configure...) })
	})
}

// onEveryBackend runs a test on both backends.
func onEveryBackend(t *testing.T, test func(t *testing.T, b iptables.Backend)) {
	for _, b := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		t.Run(string(b), func(t *testing.T) { test(t, b) })
	}
}

// live is a syncer and what reads the kernel that it works on.
type live struct {
	*npc.Syncer
	backend iptables.Backend
	sets    *ipset.Conn
	tables  [len(families)]*iptables.Table
	// flowing are the addresses that conntrack was given a flow of.
	flowing map[netip.Addr]bool
}

// newLiveWorld has a syncer, which does nothing by itself, on an empty kernel.
func newLiveWorld(t *testing.T, b iptables.Backend, configure ...func(*npc.Config)) *world {
	t.Helper()
	empty(t)
	w := newModelWorld(t, configure...)
	w.live = &live{backend: b, flowing: map[netip.Addr]bool{}}
	w.live.Syncer = w.syncer(b, slog.New(slog.NewTextHandler(io.Discard, nil)), nil)
	w.live.open(t)
	return w
}

// open opens what reads the kernel.
func (l *live) open(t *testing.T) {
	t.Helper()
	var err error
	if l.sets, err = ipset.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.sets.Close() })
	for _, f := range families {
		if l.tables[f], err = iptables.New(f.IPTables(), l.backend); err != nil {
			t.Fatal(err)
		}
	}
}

// syncer makes a syncer of the world's model.
func (w *world) syncer(b iptables.Backend, log *slog.Logger, report func(npc.InvalidPolicy)) *npc.Syncer {
	w.Helper()
	w.registry = prometheus.NewRegistry()
	s, err := npc.NewSyncer(w.model.Model, families[:], b, npc.NewMetrics(w.registry, w.model.Model), log, report)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(s.Close)
	return s
}

// boot is the first transaction of a node that has just come up.
func (l *live) boot(w *world) {
	w.Helper()
	if errs := l.Sync(w.Context(), true); len(errs) > 0 {
		w.Fatal(errs)
	}
	l.copy(w)
}

// again syncs, and copies to paper what the kernel then holds.
func (l *live) again(w *world) {
	w.Helper()
	l.flow(w)
	if errs := l.Sync(w.Context(), false); len(errs) > 0 {
		w.Fatal(errs)
	}
	l.forget(w)
	l.copy(w)
	l.forgotten(w)
}

// forget waits until the connections are deleted that somebody waits for, and what follows is done.
func (l *live) forget(w *world) {
	w.Helper()
	for l.Forgetting() {
		time.Sleep(time.Millisecond)
		if errs := l.Sync(w.Context(), false); len(errs) > 0 {
			w.Fatal(errs)
		}
	}
}

// copy reads the kernel.
func (l *live) copy(w *world) {
	w.Helper()
	listings, err := l.sets.List("")
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range families {
		seen, err := l.tables[f].Read(w.Context(), "WEAVE-NPC")
		if err != nil {
			w.Fatal(err)
		}
		k := w.kernels[f]
		clear(k.Sets)
		for _, listing := range listings {
			s := &walk.Set{Set: listing.Set, Members: map[ipset.Entry]ipset.Attr{}}
			for _, e := range listing.Members {
				s.Members[e.Entry] = e.Attr
			}
			k.Sets[s.Name] = s
		}
		clear(k.Chains)
		put := func(chain string, rules []string) {
			for _, r := range rules {
				r = strings.ReplaceAll(strings.TrimPrefix(r, "-A "+chain+" "), "-p ipv6-icmp ", "-p icmpv6 ")
				k.Chains[chain] = append(k.Chains[chain], r)
			}
		}
		put("FORWARD", seen.Hooks["FORWARD"])
		for name, c := range seen.Chains {
			put(name, c.Text)
		}
	}
}

// flow gives conntrack a flow of every pod's address that has none.
func (l *live) flow(w *world) {
	w.Helper()
	for name := range w.pods {
		for _, a := range w.addrs[name] {
			if l.flowing[a] {
				continue
			}
			far := netip.MustParseAddr("198.51.100.99")
			if a.Is6() {
				far = netip.MustParseAddr("2001:db8::99")
			}
			flow := &netlink.ConntrackFlow{FamilyType: familyNumber(a), TimeOut: 600,
				Forward: netlink.IPTuple{SrcIP: net.IP(a.AsSlice()), DstIP: net.IP(far.AsSlice()), SrcPort: 1, DstPort: 2, Protocol: 17},
				Reverse: netlink.IPTuple{SrcIP: net.IP(far.AsSlice()), DstIP: net.IP(a.AsSlice()), SrcPort: 2, DstPort: 1, Protocol: 17}}
			if err := netlink.ConntrackCreate(netlink.ConntrackTable, netlink.InetFamily(flow.FamilyType), flow); err != nil {
				w.Fatalf("giving conntrack a flow of %s: %v", a, err)
			}
			l.flowing[a] = true
		}
	}
}

func familyNumber(a netip.Addr) uint8 {
	if a.Is6() {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

// forgotten notes the addresses whose flows are gone.
func (l *live) forgotten(w *world) {
	w.Helper()
	left := map[netip.Addr]bool{}
	for _, family := range []netlink.InetFamily{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		if err != nil {
			w.Fatalf("reading conntrack: %v", err)
		}
		for _, flow := range flows {
			if a, ok := netip.AddrFromSlice(flow.Forward.SrcIP); ok {
				left[a.Unmap()] = true
			}
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(l.flowing), netip.Addr.Compare) {
		if left[a] {
			continue
		}
		delete(l.flowing, a)
		f := npc.IPv4
		if a.Is6() {
			f = npc.IPv6
		}
		w.kernels[f].Forgotten = append(w.kernels[f].Forgotten, a)
	}
}

// empty removes everything from the kernel that a test may have left there.
func empty(t testing.TB) {
	t.Helper()
	command(t, "nft", "flush", "ruleset")
	for _, f := range []string{"iptables", "ip6tables"} {
		feed(t, "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n", f+"-legacy-restore", "-w")
	}
	command(t, "ipset", "flush")
	// Rules that are gone may still be on their way out.
	eventually(t, "destroying all sets", func() bool { return run("ipset", "destroy") == nil })
	for _, family := range []netlink.InetFamily{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, anyFlow{}); err != nil {
			t.Fatal(err)
		}
	}
}

type anyFlow struct{}

func (anyFlow) MatchConntrackFlow(*netlink.ConntrackFlow) bool { return true }

// command runs a program that the test needs and returns what it prints.
func command(t testing.TB, name string, args ...string) string {
	t.Helper()
	return feed(t, "", name, args...)
}

// feed runs a program with input.
func feed(t testing.TB, input, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// run runs a program that may fail.
func run(name string, args ...string) error { return exec.Command(name, args...).Run() }
