package established

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Main(m)) }

// node returns a controller of 100 local pods and 1,000 others of ten applications, and policies that let each
// application reach the next one.
func node(tb testing.TB) *controller.Controller {
	tb.Helper()
	c := controller.New(enforce.Config{NodeName: "node1", ForwardJump: true, AllowAction: "ACCEPT", FailClosed: enforce.FailClosedAuto, NFLogGroup: 86, MaxListSize: 1024})
	c.SetNamespace(fixture.Namespace("shop"))
	for i := range 1100 {
		at := "node2"
		if i < 100 {
			at = "node1"
		}
		c.SetPod(fixture.Pod(fmt.Sprintf("shop/pod%d %s %s app=%d", i, at, podAddr(i), i%10)))
	}
	for i := range 10 {
		c.SetPolicy(fixture.Policy(tb, fmt.Sprintf("shop/app%d", i), fmt.Sprintf(`{podSelector: {matchLabels: {app: "%d"}}, ingress: [
{from: [{podSelector: {matchLabels: {app: "%d"}}}], ports: [{port: 80}]}, {from: [{ipBlock: {cidr: 192.0.2.0/24}}]}]}`, i, (i+1)%10)))
	}
	c.SetSynced()
	return c
}

func podAddr(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 32, byte(i / 200), byte(i%200 + 2)})
}

// open puts TCP connections into the table that the policies of node allow.
func open(tb testing.TB, count int) {
	tb.Helper()
	if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		tb.Fatal(err)
	}
	for i := range count {
		to := i % 100
		from := (to+1)%10 + 10*(i/100%109)
		enter(tb, podAddr(from), podAddr(to), uint16(1024+i/100))
	}
}

// enter puts a connection of TCP to port 80 into the table.
func enter(tb testing.TB, from, to netip.Addr, port uint16) {
	tb.Helper()
	f := &netlink.ConntrackFlow{FamilyType: unix.AF_INET, Forward: tuple(from, to, port, 80), Reverse: tuple(to, from, 80, port), TimeOut: 600,
		ProtoInfo: &netlink.ProtoInfoTCP{State: 3}}
	if err := netlink.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, f); err != nil {
		tb.Fatal(from, to, port, err)
	}
}

func tuple(from, to netip.Addr, sport, dport uint16) netlink.IPTuple {
	return netlink.IPTuple{SrcIP: net.IP(from.AsSlice()), DstIP: net.IP(to.AsSlice()), Protocol: unix.IPPROTO_TCP, SrcPort: sport, DstPort: dport}
}

func newWorker(tb testing.TB, c *controller.Controller) *Worker {
	tb.Helper()
	t, err := conntrack.Open(unix.AF_INET)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(t.Close)
	return newTerminator(Config{Evaluator: c.Lookup(), Table: t, Bit: 0x2000, MaxPinned: 100, Metrics: NewMetrics(prometheus.NewRegistry()),
		Log: slog.New(slog.DiscardHandler)})
}

// TestS95_ALookEndsWhatIsDeniedAndNothingElse counts what looks do as policies change.
func TestS95_ALookEndsWhatIsDeniedAndNothingElse(t *testing.T) {
	c := node(t)
	open(t, 1000)
	w := newWorker(t, c)
	look := func(when string, want counts) {
		t.Helper()
		if got, err := w.look(); err != nil || got != want {
			t.Errorf("%s: %+v, want %+v; %v", when, got, want, err)
		}
	}
	look("all are allowed", counts{})
	c.DeletePolicy("shop", "app3", "")
	look("one application is free", counts{})
	c.SetPolicy(fixture.Policy(t, "shop/app3", `{podSelector: {matchLabels: {app: "3"}}, ingress: [{ports: [{port: 81}]}]}`))
	look("its connections are denied", counts{cut: 100, pinned: 100})
	look("again", counts{pinned: 100})
	c.SetPolicy(fixture.Policy(t, "shop/app4", `{podSelector: {matchLabels: {app: "4"}}, policyTypes: [Ingress]}`))
	look("more than may stay", counts{cut: 100, pinned: 100, unpinned: 100})
	c.DeletePolicy("shop", "app3", "")
	look("one is free again", counts{restored: 100, pinned: 100})
	c.DeletePolicy("shop", "app4", "")
	look("the other one, too", counts{restored: 100})
	look("and nothing is left", counts{})
}

// TestS113_NothingEndsBeforeDomainNamesAreKnown: what is denied ends once they are.
func TestS113_NothingEndsBeforeDomainNamesAreKnown(t *testing.T) {
	c := node(t)
	open(t, 0)
	enter(t, podAddr(500), podAddr(0), 1)
	w, reader := newWorker(t, c), newWorker(t, c)
	var known atomic.Bool
	w.AreKnown = known.Load
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	w.Ask()
	time.Sleep(3 * lookAgain)
	if n := marked(t, reader); n > 0 {
		t.Errorf("%d are marked too early", n)
	}
	known.Store(true)
	await.That(t, "ending a denied connection", func() bool { return marked(t, reader) == 1 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestS95_FromLocalPodsAndToThem connections end. Those between other nodes' pods are these nodes' affair.
func TestS95_FromLocalPodsAndToThem(t *testing.T) {
	const local, remote = 0, 500
	for _, test := range []struct {
		name, types string
		from, to    int
		want        counts
	}{
		{"from a local pod", "Egress", local, remote, counts{cut: 1, pinned: 1}},
		{"to a local pod", "Ingress", remote, local, counts{cut: 1, pinned: 1}},
		{"between others", "Ingress, Egress", remote, remote + 1, counts{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := node(t)
			open(t, 0)
			enter(t, podAddr(test.from), podAddr(test.to), 1024)
			c.SetPolicy(fixture.Policy(t, "shop/all", fmt.Sprintf(`{podSelector: {}, policyTypes: [%s]}`, test.types)))
			if got, err := newWorker(t, c).look(); err != nil || got != test.want {
				t.Errorf("%+v, want %+v; %v", got, test.want, err)
			}
		})
	}
}

// TestS95_WhoOpenedItIsNotKnown of a connection that was taken up in mid-stream: it ends if both directions are denied.
func TestS95_WhoOpenedItIsNotKnown(t *testing.T) {
	c := node(t)
	w := newWorker(t, c)
	for _, test := range []struct {
		name             string
		from, to         int
		sourcePort, port uint16
		liberal, ends    bool
	}{
		{"allowed", 1, 0, 1024, 80, false, false},
		{"denied", 2, 0, 1024, 80, false, true},
		{"taken up, allowed", 1, 0, 1024, 80, true, false},
		{"taken up, allowed in reverse", 0, 1, 80, 1024, true, false},
		{"taken up, denied in both", 2, 0, 1024, 80, true, true},
		{"taken up, the ports do not fit", 0, 1, 1024, 80, true, true},
	} {
		p := pass{Worker: w}
		p.take(conntrack.Entry{Name: "it", Source: podAddr(test.from), Destination: podAddr(test.to), Protocol: unix.IPPROTO_TCP, SourcePort: test.sourcePort,
			Port: test.port, Liberal: test.liberal})
		if _, ends := p.ended["it"]; ends != test.ends {
			t.Errorf("%s: ends = %t", test.name, ends)
		}
	}
}

// BenchmarkLook evaluates 100,000 connections that no change denies.
func BenchmarkLook(b *testing.B) {
	c := node(b)
	open(b, 100_000)
	w := newWorker(b, c)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := cpu(b)
	for b.Loop() {
		c.SetPolicy(fixture.Policy(b, "shop/other", `{podSelector: {matchLabels: {app: none}}}`))
		c.DeletePolicy("shop", "other", "")
		if _, err := w.look(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu(b)-start).Milliseconds())/float64(b.N), "cpu-ms/op")
}

func cpu(tb testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestLooksTakeHalfAProcessor in the long run, and no pause is made after a few short ones.
func TestLooksTakeHalfAProcessor(t *testing.T) {
	const ms = time.Millisecond
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		name         string
		took, idle   time.Duration
		looks        int
		pause, total time.Duration // after the last, and of all
	}{
		{"a_short_look", 20 * ms, 0, 1, 0, 0},
		{"a_burst_of_short_ones", 20 * ms, 0, 5, 0, 0},
		{"short_ones_with_time_between", 20 * ms, 80 * ms, 100, 0, 0},
		{"short_ones_without_end", 20 * ms, 0, 1000, 20 * ms, 19_800 * ms},
		{"a_long_look", 1000 * ms, 0, 1, 800 * ms, 800 * ms},
		{"long_ones_without_end", 1000 * ms, 0, 10, 1000 * ms, 9_800 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, at := share{at: now}, now
			var pause, total time.Duration
			for range c.looks {
				at = at.Add(c.took)
				pause = s.after(at, c.took)
				total += pause
				at = at.Add(pause + c.idle)
			}
			if (pause-c.pause).Abs() > ms || (total-c.total).Abs() > c.total/50 {
				t.Errorf("a pause of %s after the last, %s in all", pause, total)
			}
		})
	}
}
