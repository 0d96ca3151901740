package established

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	"github.com/weave-npc/weave-npc/test/await"
)

// costlyRules evaluates a connection of which the source tells the namespace: 10.NAMESPACE.0.0/16. All are denied. Those
// of namespaces from 1 on take many comparisons, as long as they are costly.
type costlyRules struct {
	t     *testing.T
	other *conntrack.Table
	cheap bool
	// said are the connections whose verdict was said, in order, and ends how many had ended before each.
	said []string
	ends []int
	// tried counts the comparisons of those whose verdict was not.
	tried int
	then  func()
}

func (c *costlyRules) LocalAddrs() map[netip.Addr]struct{} {
	local := map[netip.Addr]struct{}{}
	for namespace := range 3 {
		local[costlyAddr(namespace)] = struct{}{}
	}
	return local
}

func (c *costlyRules) EvaluateWithin(most int, f verdict.Flow) (v verdict.Verdict, costly string) {
	namespace := fmt.Sprint(f.From.As4()[1])
	const takes = 10_000
	if !c.cheap && namespace != "0" && most < takes {
		c.tried += most
		return v, namespace
	}
	entries, err := c.other.Marked(0x2000)
	if err != nil {
		c.t.Error(err)
	}
	c.said, c.ends = append(c.said, namespace+":"+fmt.Sprint(f.Port)), append(c.ends, len(entries))
	if c.then != nil {
		c.then()
	}
	return verdict.Verdict{Evaluated: true}, ""
}

func costlyAddr(namespace int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(namespace), 0, 1}) }

// newCostly returns a Worker with connections of three namespaces, one cheap one and some costly ones of two others.
func newCostly(t *testing.T, costly [3]int) (*Worker, *costlyRules) {
	t.Helper()
	open(t, 0)
	for namespace, count := range costly {
		for i := range count {
			enter(t, costlyAddr(namespace), podAddr(i), uint16(1024+i))
		}
	}
	var tables [2]*conntrack.Table
	for i := range tables {
		var err error
		if tables[i], err = conntrack.Open(unix.AF_INET); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tables[i].Close)
	}
	rules := &costlyRules{t: t, other: tables[1]}
	return newTerminator(Config{Evaluator: rules, Table: tables[0], Bit: 0x2000, MaxPinned: 100,
		Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}), rules
}

// namespaces returns whose verdicts were said, in order, and forgets them.
func (c *costlyRules) namespaces() string {
	var out []string
	for _, s := range c.said {
		namespace, _, _ := strings.Cut(s, ":")
		out = append(out, namespace)
	}
	c.said, c.ends = nil, nil
	return strings.Join(out, "")
}

// look looks at all connections, which ends as many.
func look(t *testing.T, w *Worker, cut int) {
	t.Helper()
	if got, err := w.look(); err != nil || got.cut != cut {
		t.Errorf("a look ended %d, want %d; %v", got.cut, cut, err)
	}
}

// take has connections take their turns, and returns whose they were.
func take(t *testing.T, w *Worker, c *costlyRules, count int) string {
	t.Helper()
	for range count {
		if err := w.takeTurn(); err != nil {
			t.Fatal(err)
		}
	}
	return c.namespaces()
}

// TestS95_WhatTakesManyComparisonsEndsAfterTheRest, with a bound of comparisons before that, and in turns.
func TestS95_WhatTakesManyComparisonsEndsAfterTheRest(t *testing.T) {
	w, rules := newCostly(t, [3]int{1, 4, 2})
	look(t, w, 1)
	if got := rules.namespaces(); got != "0" || rules.tried > 6*1000 {
		t.Errorf("the look had verdicts on connections of %s, and made %d comparisons in vain", got, rules.tried)
	}
	look(t, w, 0) // and none waits twice
	rules.namespaces()
	first := w.aside.turns[0]
	second := map[string]string{"1": "2", "2": "1"}[first]
	want := first + second + first + second
	if got := take(t, w, rules, 4); got != want || marked(t, w) != 5 {
		t.Errorf("the turns were those of %s, want %s; %d have ended", got, want, marked(t, w))
	}
	if got := take(t, w, rules, 2); got != "11" || len(w.aside.turns) > 0 || len(w.aside.found) > 0 || marked(t, w) != 7 {
		t.Errorf("the last turns were those of %s; %d have ended", got, marked(t, w))
	}
}

// TestS95_WhatWaitsKeepsItsPlace while there are looks, however many, unless it is gone or becomes cheap.
func TestS95_WhatWaitsKeepsItsPlace(t *testing.T) {
	w, rules := newCostly(t, [3]int{0, 6, 0})
	look(t, w, 0)
	waiting := slices.Clone(w.aside.waiting["1"])
	for i := range waiting {
		look(t, w, 0)
		if next := w.aside.waiting["1"][0].Name; next != waiting[i].Name {
			t.Fatalf("turn %d is another one's", i)
		}
		take(t, w, rules, 1)
	}
	if marked(t, w) != 6 {
		t.Errorf("%d have ended", marked(t, w))
	}
	look(t, w, 0)
	if n := len(w.aside.waiting["1"]); n != 6 {
		t.Errorf("%d wait", n)
	}
	if err := rules.other.Restore(waiting[:2], w.Bit); err != nil {
		t.Fatal(err)
	}
	if n, err := w.Table.Delete(func(ends *[4]netip.Addr) bool { return ends[1] == waiting[5].Destination }); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	look(t, w, 0)
	if n := len(w.aside.waiting["1"]); n != 5 {
		t.Errorf("%d wait, one is gone", n)
	}
	rules.cheap = true
	look(t, w, 2)
	if len(w.aside.turns)+len(w.aside.waiting)+len(w.aside.found) > 0 {
		t.Errorf("cheap ones wait: %v", w.aside.turns)
	}
}

// TestS95_RelatedToWhatWaits connections end with it, which is ended as it is by then.
func TestS95_RelatedToWhatWaits(t *testing.T) {
	w, rules := newCostly(t, [3]int{1, 1, 0})
	var data conntrack.Entry
	l := pass{Worker: w}
	w.aside.begin(nil)
	if err := w.Table.Entries(func(_, _ netip.Addr) bool { return true }, func(e conntrack.Entry) {
		if l.take(e); len(w.aside.turns) == 0 {
			data = e
		}
	}); err != nil {
		t.Fatal(err)
	}
	if data.Name == "" { // the costly one came first
		data = l.pin[0]
	}
	l.pin, l.added = nil, 0
	data.Master = w.aside.waiting["1"][0].Name
	l.take(data)
	if err := l.end(); err != nil || marked(t, w) > 0 {
		t.Fatalf("%d have ended, %v", marked(t, w), err)
	}
	if take(t, w, rules, 1); marked(t, w) != 2 || w.former != 2 {
		t.Errorf("%d have ended", marked(t, w))
	}
}

// TestS95_WhatWaitsEndsWhileChangesCome one after the other, and another namespace's connection before all of it.
func TestS95_WhatWaitsEndsWhileChangesCome(t *testing.T) {
	w, rules := newCostly(t, [3]int{1, 20, 0})
	w.Ask()
	rules.then = func() {
		if at := len(rules.said) - 1; rules.said[at][0] != '0' && !slices.Contains(rules.said[:at], "0:80") ||
			rules.said[at][0] == '1' && rules.ends[at] == 0 {
			t.Errorf("said %v when %v had ended", rules.said, rules.ends)
		}
		w.Ask()
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	table, err := conntrack.Open(unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	ended := 0
	await.Within(t, 30*time.Second, func() bool {
		w.Ask()
		entries, err := table.Marked(w.Bit)
		ended = len(entries)
		return err == nil && ended == 21
	}, func() string { return fmt.Sprintf("%d of 21 have ended", ended) })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestS115_WhatWaitsAndBeganBeforeItsPodWasKnownEnds once the rules stand, also if it takes its turn later than the
// looks for its address.
func TestS115_WhatWaitsAndBeganBeforeItsPodWasKnownEnds(t *testing.T) {
	w, rules := newCostly(t, [3]int{0, 1, 1})
	requests := 0
	w.EndLate, w.late.rules = func() { requests++ }, unwritten
	w.Late([]netip.Addr{costlyAddr(1)})
	look(t, w, 0)
	if got := take(t, w, rules, 1); got != "1" || requests != 1 || len(w.aside.turns) != 1 {
		t.Errorf("the turn was that of %s, the rules were asked for %d times", got, requests)
	}
	w.late.confirm()
	for range 3 {
		look(t, w, 0)
	}
	if got := take(t, w, rules, 1); got != "1" || len(w.aside.turns) != 0 || marked(t, w) != 1 {
		t.Errorf("the turn was that of %s, %d have ended", got, marked(t, w))
	}
}
