package established

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// marked returns how many connections have the bit of the mark.
func marked(t *testing.T, w *Worker) int {
	t.Helper()
	entries, err := w.Table.Marked(w.Bit)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestS115_WhatBeganBeforeItsPodWasKnownEnds if policies deny it, also where others are kept, and nothing else does.
func TestS115_WhatBeganBeforeItsPodWasKnownEnds(t *testing.T) {
	c := node(t)
	open(t, 1000)
	c.SetPolicy(fixture.Policy(t, "shop/deny", `{podSelector: {matchLabels: {kept: none}}}`))
	enter(t, podAddr(500), podAddr(0), 1) // denied: of another application
	enter(t, podAddr(500), podAddr(2), 2) // as well
	enter(t, podAddr(1), podAddr(0), 3)   // allowed
	asked := 0
	w := newWorker(t, c)
	w = newTerminator(Config{Evaluator: w.Evaluator, Table: w.Table, Bit: w.Bit, MaxPinned: w.MaxPinned, Metrics: w.Metrics, Log: w.Log,
		EndLate: func() { asked++ }})
	step := func(when string, due bool, want counts, requests, bits int) {
		t.Helper()
		if w.due() != due {
			t.Errorf("%s: due = %t", when, !due)
		}
		if got, err := w.look(); err != nil || got != want || asked != requests || marked(t, w) != bits {
			t.Errorf("%s: %+v, want %+v; rules were asked for %d times; %d are marked; %v", when, got, want, asked, marked(t, w), err)
		}
	}
	step("nothing became known", false, counts{}, 0, 0)
	w.Late([]netip.Addr{podAddr(1)})
	step("a pod whose connections are allowed", true, counts{}, 0, 0)
	step("again", true, counts{}, 0, 0)
	step("after that", false, counts{}, 0, 0)
	w.Late([]netip.Addr{podAddr(0)})
	step("one that has a denied connection", true, counts{}, 1, 0)
	step("before the rules stand", true, counts{}, 1, 0)
	w.late.confirm()
	step("with the rules", true, counts{cut: 1, pinned: 1}, 1, 1)
	step("again", true, counts{pinned: 1}, 1, 1)
	if len(w.late.pending()) > 0 {
		t.Errorf("still pending: %v", w.late.pending())
	}
	c.SetPolicy(fixture.Policy(t, "shop/app4", `{podSelector: {matchLabels: {app: "4"}}, policyTypes: [Ingress]}`))
	step("an edit denies others, which are kept", true, counts{pinned: 1}, 1, 1)
	c.DeletePolicy("shop", "app0", "")
	step("the ended one is allowed again", true, counts{restored: 1, pinned: 1}, 1, 0)
	step("and it is seen that none is left", true, counts{}, 1, 0)
	step("after that", false, counts{}, 1, 0)
}

// TestS115_ABitThatAnotherProgramUsesEndsNothing: the rules would end the other program's connections.
func TestS115_ABitThatAnotherProgramUsesEndsNothing(t *testing.T) {
	c := node(t)
	open(t, 0)
	enter(t, podAddr(500), podAddr(0), 1)
	enter(t, podAddr(1), podAddr(0), 2)     // allowed
	enter(t, podAddr(600), podAddr(700), 3) // between other nodes
	w := newWorker(t, c)
	w.EndLate, w.late.rules = func() { t.Error("rules are asked for") }, unwritten
	var others []conntrack.Entry
	if err := w.Table.Entries(func(source, _ netip.Addr) bool { return source != podAddr(500) },
		func(e conntrack.Entry) { others = append(others, e) }); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Table.Terminate(others, w.Bit, false); err != nil {
		t.Fatal(err)
	}
	w.Late([]netip.Addr{podAddr(0)})
	if _, err := w.look(); err == nil || marked(t, w) != 2 {
		t.Errorf("%d are marked; %v", marked(t, w), err)
	}
}

// TestS115_LateWhereAllAreEnded: a look at all connections follows, as after an edit.
func TestS115_LateWhereAllAreEnded(t *testing.T) {
	c := node(t)
	open(t, 0)
	enter(t, podAddr(500), podAddr(0), 1)
	w := newWorker(t, c)
	w.Late([]netip.Addr{podAddr(0)})
	if got, err := w.look(); err != nil || got.cut != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	p := pass{Worker: w}
	if p.keeps(conntrack.Entry{Source: podAddr(7), Destination: podAddr(8), Protocol: unix.IPPROTO_TCP}) {
		t.Error("connections are kept")
	}
}

// TestS115_ManyThatBecomeKnownShareALook, and each gets one soon, however many follow.
func TestS115_ManyThatBecomeKnownShareALook(t *testing.T) {
	c := node(t)
	open(t, 0)
	w := newWorker(t, c)
	var looks atomic.Int64
	w.Evaluator = counting{w.Evaluator, &looks}
	done := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- w.Run(ctx) }()
	for end := time.Now().Add(3 * lateAfter); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		w.Late([]netip.Addr{podAddr(0)})
	}
	await.That(t, "a look", func() bool { return looks.Load() > 0 })
	cancel()
	if err := <-done; err != nil || looks.Load() > 8 {
		t.Errorf("%d looks, %v", looks.Load(), err)
	}
}

// counting counts the looks.
type counting struct {
	Evaluator
	looks *atomic.Int64
}

func (c counting) LocalAddrs() map[netip.Addr]struct{} {
	c.looks.Add(1)
	return c.Evaluator.LocalAddrs()
}
