package connections

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// longVariable is set for tests that wait for minutes, or measure.
const longVariable = "WEAVE_NPC_TEST_LONG"

// manyConnections is how many more connections a table has the second time that TestS95_HowSoonAConnectionEnds
// measures.
const manyConnections = 100_000

// TestS95_HowSoonAConnectionEnds after the change is in the kernel that denies it. With $WEAVE_NPC_TEST_LONG it is
// measured: from the last look at which a set still held the pod as one that nothing isolates, to the kernel's report
// of the connection's mark. Changes come one after the other, most of them while connections are still looked at for
// the one before, or calmly.
func TestS95_HowSoonAConnectionEnds(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Base(), "--established=terminate")
		m := &terminateTimes{Cluster: w, events: marks(t, w, w.Node("node1"))}
		c := &e2e.Connection{From: w.Hosts["db"], To: w.Hosts["web"], Family: 4, Proto: "tcp", Port: e2e.BackendPort}
		e2e.NewConnections(t, w).Begin(t, c, c.Direct()) // it says nothing any more
		free := e2e.Do(e2e.Base(), e2e.Policy("shop/closed", `{podSelector: {matchLabels: {app: other}}}`))
		comes, relabelled := e2e.Do(free, e2e.Policy("shop/p", e2e.CloseWeb)), e2e.Do(free,
			e2e.Pod("shop/web", e2e.Labelled("app=other")))
		if os.Getenv(longVariable) == "" {
			m.measure(t, "a policy comes", free, comes, 2, 0)
			m.measure(t, "a pod is relabelled", free, relabelled, 2, 0)
			return
		}
		m.measure(t, "a policy comes", free, comes, 100, 0)
		m.measure(t, "a pod is relabelled", free, relabelled, 100, 0)
		m.measure(t, "a policy comes, calmly", free, comes, 100, time.Second/2)
		fill(t, w, w.Node("node1"), manyConnections)
		about := fmt.Sprintf("%d connections more, ", manyConnections)
		m.measure(t, about+"a policy comes", free, comes, 15, 0)
		m.measure(t, about+"a policy comes, calmly", free, comes, 15, 4*time.Second)
	})
}

// terminateTimes measures how soon connections end.
type terminateTimes struct {
	*e2e.Cluster
	events <-chan markEvent
}

// measure ends the connection again and again by a change, with a pause after each, and logs how long that took.
func (m *terminateTimes) measure(t *testing.T, about string, free, closed e2e.Change, rounds int, pause time.Duration) {
	t.Helper()
	m.Apply(t, m.Objects(free))
	var took []time.Duration
	before := e2e.UsageOf(t, m.Daemons[0].Cmd.Process.Pid).CPU
	for i := range rounds {
		time.Sleep(pause + time.Duration(i%5)*100*time.Millisecond)
		start := time.Now()
		m.Source.Write(t, m.Objects(closed))
		changed := m.awaitIsolated(t, start)
		took = append(took, m.awaitMark(t, true).Sub(changed))
		time.Sleep(pause)
		m.Source.Write(t, m.Objects(free))
		m.awaitMark(t, false)
		await.That(t, "web is free again", func() bool { return m.isFree(t) })
	}
	slices.Sort(took)
	at := func(percent int) time.Duration { return took[(rounds-1)*percent/100].Round(100 * time.Microsecond) }
	t.Logf("%s: of %d times it ended within %s at half of them, %s at 99 %%, %s at all; CPU of a change and its opposite: %s",
		about, rounds, at(50), at(99), at(100), (e2e.UsageOf(t,
			m.Daemons[0].Cmd.Process.Pid).CPU-before)/time.Duration(rounds))
}

// isFree reports whether nothing isolates web.
func (m *terminateTimes) isFree(t *testing.T) bool {
	t.Helper()
	sets, err := m.Sets[m.Node("node1")].List("weave-default-allow-ingress")
	if err != nil {
		t.Fatal(err)
	}
	return e2e.Holds(sets, ipset.Addr(m.Hosts["web"].Addr4()))
}

// awaitIsolated waits until web is isolated, and returns when it was last known not to be: it was not at some time.
func (m *terminateTimes) awaitIsolated(t *testing.T, free time.Time) time.Time {
	t.Helper()
	for deadline := time.Now().Add(e2e.Timeout); ; time.Sleep(200 * time.Microsecond) {
		now := time.Now()
		if !m.isFree(t) {
			return free
		}
		if free = now; now.After(deadline) {
			t.Fatalf("web is not isolated\n%s", m.State())
		}
	}
}

// awaitMark waits until the connection is marked, or is not any more, and returns when that was reported.
func (m *terminateTimes) awaitMark(t *testing.T, marked bool) time.Time {
	t.Helper()
	for deadline := time.After(e2e.Timeout); ; {
		select {
		case e := <-m.events:
			if marked == (e.mark&0x2000 != 0) {
				return e.at
			}
		case <-deadline:
			t.Fatalf("no connection was reported, marked = %t\n%s", marked, m.State())
		}
	}
}

// markEvent is a change of the mark of some connection.
type markEvent struct {
	mark uint32
	at   time.Time
}

// marks returns the changes of marks that a node's kernel reports, of connections that are opened later.
func marks(t *testing.T, w *e2e.Cluster, n *lab.Node) <-chan markEvent {
	t.Helper()
	const updates, attrMark, kinds = 2, 8, 0x3fff // NFNLGRP_CONNTRACK_UPDATE, CTA_MARK, NLA_TYPE_MASK
	var socket *nl.NetlinkSocket
	if err := n.Do(func() (err error) {
		socket, err = nl.Subscribe(unix.NETLINK_NETFILTER, updates)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := socket.SetReceiveTimeout(&unix.Timeval{Usec: 100_000}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	events, done := make(chan markEvent, 1000), make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-done
		socket.Close()
	})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			messages, _, err := socket.Receive()
			at := time.Now()
			if err != nil {
				continue // nothing came
			}
			for _, message := range messages {
				attrs, err := nl.ParseRouteAttr(message.Data[nl.SizeofNfgenmsg:])
				for _, a := range attrs {
					if err == nil && a.Attr.Type&kinds == attrMark && len(a.Value) == 4 {
						events <- markEvent{binary.BigEndian.Uint32(a.Value), at}
					}
				}
			}
		}
	}()
	return events
}

// fill adds so many open TCP connections between pods, which everybody allows, to a node's table.
func fill(t *testing.T, w *e2e.Cluster, n *lab.Node, count int) {
	t.Helper()
	tuple := func(from, to string, source, destination int) netlink.IPTuple {
		return netlink.IPTuple{SrcIP: net.IP(w.Hosts[from].Addr4().AsSlice()),
			DstIP:    net.IP(w.Hosts[to].Addr4().AsSlice()),
			Protocol: unix.IPPROTO_TCP, SrcPort: uint16(source), DstPort: uint16(destination)}
	}
	pairs := []string{"api>db", "copy>mon", "out>db", "mon>api"}
	if err := n.Do(func() error {
		for i := range count {
			from, to, _ := strings.Cut(pairs[i%len(pairs)], ">")
			port := 1024 + i/len(pairs)
			f := &netlink.ConntrackFlow{FamilyType: unix.AF_INET, Forward: tuple(from, to, port, 80),
				Reverse: tuple(to, from, 80, port), TimeOut: 6000,
				ProtoInfo: &netlink.ProtoInfoTCP{State: 3}}
			if err := netlink.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, f); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
