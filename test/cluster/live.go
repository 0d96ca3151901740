package cluster

import (
	"context"
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
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/syncer"
	"github.com/weave-npc/weave-npc/npc/observe/kernel/simulate"
)

// OnEveryBackend runs a test on both backends.
func OnEveryBackend(t *testing.T, test func(t *testing.T, b iptables.Backend)) {
	for _, b := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		t.Run(string(b), func(t *testing.T) { test(t, b) })
	}
}

// Live is a syncer and what reads the kernel that it writes.
type Live struct {
	*syncer.Syncer
	Backend iptables.Backend
	Sets    *ipset.Conn
	Tables  [len(npc.Families)]*iptables.Table
	// flowing are the addresses that conntrack was given a flow of.
	flowing map[netip.Addr]bool
}

// NewLive returns a cluster whose transactions a syncer applies to the real kernel, which is empty. The syncer does
// nothing by itself.
func NewLive(t *testing.T, b iptables.Backend, configure ...func(*enforce.Config)) *Cluster {
	t.Helper()
	Empty(t)
	w := NewUnsynced(t, configure...)
	w.OpenKernel(b)
	w.Live.Syncer = w.NewSyncer(b, slog.New(slog.DiscardHandler), nil)
	return w
}

// OpenKernel makes the cluster's kernels copies of the real one. A syncer must be given to Live before anything is
// applied.
func (w *Cluster) OpenKernel(b iptables.Backend) {
	w.Helper()
	sets, err := ipset.Open()
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = sets.Close() })
	w.Live = &Live{Backend: b, Sets: sets, flowing: map[netip.Addr]bool{}}
	for _, f := range npc.Families {
		if w.Live.Tables[f], err = iptables.New(naming.IPTables(f), b); err != nil {
			w.Fatal(err)
		}
	}
}

// NewSyncer returns a syncer of the cluster's model.
func (w *Cluster) NewSyncer(b iptables.Backend, log *slog.Logger, report func(enforce.InvalidPolicy)) *syncer.Syncer {
	w.Helper()
	w.Registry = prometheus.NewRegistry()
	metrics := syncer.NewMetrics(w.Registry, w.Model.Controller, npc.Families[:])
	s, err := syncer.New(w.Model.Controller, npc.Families[:], b, metrics, log, report)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(s.Close)
	return s
}

// boot is the first transaction of a node that has just come up.
func (l *Live) boot(w *Cluster) {
	w.Helper()
	if errs := l.Sync(w.Context(), true); len(errs) > 0 {
		w.Fatal(errs)
	}
	l.Copy(w)
}

// again syncs, and copies what the kernel then holds.
func (l *Live) again(w *Cluster) {
	w.Helper()
	l.flow(w)
	if errs := l.Sync(w.Context(), false); len(errs) > 0 {
		w.Fatal(errs)
	}
	l.forget(w)
	l.Copy(w)
	l.forgotten(w)
}

// forget waits until the connections are deleted that an address waits for, and carries out what follows.
func (l *Live) forget(w *Cluster) {
	w.Helper()
	for w.Forgetting() {
		time.Sleep(time.Millisecond)
		if errs := l.Sync(w.Context(), false); len(errs) > 0 {
			w.Fatal(errs)
		}
	}
}

// Copy copies what the kernel holds to the cluster's kernels.
func (l *Live) Copy(w *Cluster) {
	w.Helper()
	for _, f := range npc.Families { // as another goroutine of weave-npc does
		_ = l.Sets.Apply([]ipset.Op{w.Model.Alive(f)})
	}
	listings, err := l.Sets.List("")
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range npc.Families {
		seen, err := l.Tables[f].Read(w.Context(), "WEAVE-NPC")
		if err != nil {
			w.Fatal(err)
		}
		k := w.Kernels[f]
		clear(k.Sets)
		for _, listing := range listings {
			s := &simulate.Set{Set: listing.Set, Members: map[ipset.Entry]ipset.Attr{}}
			for _, e := range listing.Members {
				e.Timeout = 0 // it runs, and copies are compared
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
		put("INPUT", seen.Hooks["INPUT"])
		put("OUTPUT", seen.Hooks["OUTPUT"])
		for name, c := range seen.Chains {
			put(name, c.Text)
		}
	}
}

// Forgetting reports whether an address waits for the connections of its former pod to be deleted, or for the sync
// after that.
func (w *Cluster) Forgetting() bool {
	w.Helper()
	return w.Metric("weavenpc_quarantined_addresses") > 0
}

// flow gives conntrack a flow of every pod's address that has none.
func (l *Live) flow(w *Cluster) {
	w.Helper()
	for name := range w.Pods {
		for _, a := range w.Addrs[name] {
			if l.flowing[a] {
				continue
			}
			far := net.ParseIP("198.51.100.99").To4()
			if a.Is6() {
				far = net.ParseIP("2001:db8::99")
			}
			near := net.IP(a.AsSlice())
			flow := &netlink.ConntrackFlow{FamilyType: familyNumber(a), TimeOut: 600,
				Forward: netlink.IPTuple{SrcIP: near, DstIP: far, SrcPort: 1, DstPort: 2, Protocol: 17},
				Reverse: netlink.IPTuple{SrcIP: far, DstIP: near, SrcPort: 2, DstPort: 1, Protocol: 17}}
			err := netlink.ConntrackCreate(netlink.ConntrackTable, netlink.InetFamily(flow.FamilyType), flow)
			if err != nil {
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

// forgotten records the addresses whose flows are gone.
func (l *Live) forgotten(w *Cluster) {
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
		w.Kernels[f].Forgotten = append(w.Kernels[f].Forgotten, a)
	}
}

// Empty removes everything from the kernel that a test may have left there.
func Empty(t testing.TB) {
	t.Helper()
	Command(t, "nft", "flush", "ruleset")
	for _, f := range []string{"iptables", "ip6tables"} {
		Feed(t, "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n", f+"-legacy-restore", "-w")
	}
	Command(t, "ipset", "flush")
	// Rules that were deleted may still be in use for a moment.
	Eventually(t, "destroying all sets", func() bool { return Run("ipset", "destroy") == nil })
	for _, family := range []netlink.InetFamily{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, anyFlow{}); err != nil {
			t.Fatal(err)
		}
	}
}

type anyFlow struct{}

func (anyFlow) MatchConntrackFlow(*netlink.ConntrackFlow) bool { return true }

// Command runs a program that the test needs and returns what it prints.
func Command(t testing.TB, name string, args ...string) string {
	t.Helper()
	return Feed(t, "", name, args...)
}

// Feed runs a program with input.
func Feed(t testing.TB, input, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Run runs a program that may fail.
func Run(name string, args ...string) error { return exec.Command(name, args...).Run() }

// timeout is how long a test waits for what must happen.
const timeout = 2 * time.Minute

// Eventually waits for what must become true.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, timeout)
		}
	}
}
