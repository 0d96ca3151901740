package conntrack

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a table that takes its time, and can fail.
type slow struct {
	mu    sync.Mutex
	takes time.Duration
	err   error
	tries int
}

func (s *slow) Delete(func(*[4]netip.Addr) bool) (int, error) {
	s.mu.Lock()
	s.tries++
	takes, err := s.takes, s.err
	s.mu.Unlock()
	time.Sleep(takes)
	return 0, err
}

func (s *slow) fails(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func urgent(last ...byte) (out []Request) {
	for _, b := range last {
		out = append(out, Request{Addr: netip.AddrFrom4([4]byte{10, 0, 0, b}), Scope: All})
	}
	return out
}

// TestOneListingServesAllThatWait shows that requests which come while the table is listed share the next listing, and
// that the worker leaves most of the time to others.
func TestOneListingServesAllThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slow{takes: 200 * time.Millisecond}
		w := NewWorker(table.Delete, nil, func() {})
		start := time.Now()
		for i := range 250 {
			w.Ask(urgent(byte(i)))
			time.Sleep(10 * time.Millisecond)
		}
		for w.busy() {
			time.Sleep(10 * time.Millisecond)
		}
		if done := w.Done(); len(done) != 250 {
			t.Errorf("%d addresses are done", len(done))
		}
		if took := time.Since(start); table.tries > 4 || took > 4*time.Second {
			t.Errorf("%d listings in %s", table.tries, took)
		}
		w.Close()
	})
}

func TestWhatIsNotUrgentWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slow{}
		w := NewWorker(table.Delete, nil, func() {})
		for i := range 90 {
			w.Ask([]Request{{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Later: true}})
			time.Sleep(10 * time.Millisecond)
		}
		if table.tries != 0 || w.busy() {
			t.Errorf("it was tried %d times", table.tries)
		}
		w.Ask(urgent(200)) // takes along what waits
		time.Sleep(10 * time.Millisecond)
		if done := w.Done(); len(done) != 91 || table.tries != 1 {
			t.Errorf("%d addresses are done after %d tries", len(done), table.tries)
		}
		w.Ask([]Request{{Addr: netip.MustParseAddr("10.0.0.1"), Later: true}})
		w.Close() // does what is left
		if done := w.Done(); len(done) != 1 {
			t.Errorf("at the end %d addresses are done", len(done))
		}
	})
}

// TestS27_WhatFailsIsTriedAgainAndNotDone shows that an address is done only when its connections are deleted, and that
// one which was asked for again meanwhile is done again.
func TestS27_WhatFailsIsTriedAgainAndNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &slow{err: errors.New("no"), takes: time.Millisecond}
		changes := 0
		w := NewWorker(table.Delete, nil, func() { changes++ })
		w.Ask(urgent(1))
		time.Sleep(20 * time.Second)
		if err, stuck := w.Trouble(time.Now()); err == nil || !stuck || len(w.Done()) != 0 || changes != table.tries {
			t.Errorf("%v, stuck: %t, %d changes and %d tries", err, stuck, changes, table.tries)
		}
		if table.tries < 5 || table.tries > 12 {
			t.Errorf("%d tries", table.tries)
		}
		table.fails(nil)
		time.Sleep(retryLast)
		if err, stuck := w.Trouble(time.Now()); err != nil || stuck || !slices.Equal(w.Done(), []netip.Addr{netip.MustParseAddr("10.0.0.1")}) {
			t.Errorf("%v, stuck: %t", err, stuck)
		}
		table.takes = time.Second
		w.Ask(urgent(1))
		time.Sleep(500 * time.Millisecond)
		w.Ask(urgent(1))
		time.Sleep(time.Second)
		if done := w.Done(); len(done) != 0 {
			t.Errorf("it is done before what came meanwhile: %v", done)
		}
		time.Sleep(10 * time.Second)
		if done := w.Done(); len(done) != 1 {
			t.Errorf("it is not done: %v", done)
		}
		w.Close()
	})
}

// TestRequestsOfOneAddressAreMerged: the wider scope, the earlier time and the greater urgency hold.
func TestRequestsOfOneAddressAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
		var matched []bool
		w := NewWorker(func(match func(*[4]netip.Addr) bool) (int, error) {
			matched = append(matched, match(&[4]netip.Addr{a, b, b, a}))
			return 0, nil
		}, func(netip.Addr) bool { return false }, func() {})
		w.Ask(nil)
		w.Ask([]Request{{Addr: a, Scope: All, Later: true}})
		w.Ask([]Request{{Addr: a, Scope: WithLocalPods}})
		w.Ask([]Request{{Addr: a, Scope: WithLocalPods, Later: true}})
		time.Sleep(10 * time.Millisecond) // far less than what can wait would wait
		synctest.Wait()
		if len(matched) != 1 || !matched[0] || len(w.Done()) != 1 {
			t.Errorf("it was matched in these tries: %v", matched)
		}
		w.Close()
		w.Ask(urgent(1))
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(matched) != 1 {
			t.Error("a closed worker works")
		}
	})
}

func TestExplain(t *testing.T) {
	for want, got := range map[string]string{
		"":              Explain(nil, false),
		"it takes long": Explain(nil, true),
		": no socket":   Explain(errors.New("no socket"), true),
	} {
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// busy reports whether an urgent request is waiting or any request is being carried out.
func (w *Worker) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, urgent := w.oldest()
	return urgent || len(w.running) > 0
}
