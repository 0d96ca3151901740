package ipowner

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestOwners(t *testing.T) {
	refused := map[string]bool{}
	table := Table[string]{
		Before:  func(a, b string) bool { return a > b },
		Refused: func(_ netip.Addr, p string) bool { return refused[p] },
	}
	a := netip.MustParseAddr("192.0.2.1")
	for i, step := range []struct {
		pod     string
		claims  bool
		refused string // from now on; empty: none
		owner   string
		others  int
	}{
		{"m", true, "", "m", 0},
		{"m", true, "", "m", 0},
		{"a", true, "", "m", 1},
		{"z", true, "", "z", 2},
		{"z", true, "z", "m", 2},
		{"m", false, "z", "a", 1},
		{"a", false, "z", "", 1},
		{"z", true, "", "z", 0},
		{"z", false, "", "", 0},
	} {
		clear(refused)
		refused[step.refused] = true
		table.Resolve(a, step.pod, step.claims)
		if got := table.Owner(a); got != step.owner || len(table.Others(a)) != step.others {
			t.Errorf("step %d: owner %q and %d others, want %q and %d", i, got, len(table.Others(a)), step.owner, step.others)
		}
	}
	if len(table.claimants) != 0 {
		t.Errorf("%d addresses are left", len(table.claimants))
	}
}

func TestWatcher(t *testing.T) {
	var log bytes.Buffer
	var reported []Conflict
	w := Watcher{Log: slog.New(slog.NewTextHandler(&log, nil)), Report: func(c Conflict) { reported = append(reported, c) }}
	now := time.Unix(1000, 0)
	lasting := Conflict{Addr: netip.MustParseAddr("192.0.2.1"), Kind: OfNode, Pod: Ref{Namespace: "a", Name: "x"}}
	brief := Conflict{Addr: netip.MustParseAddr("192.0.2.2"), Kind: LocalPod, Pod: Ref{Namespace: "a", Name: "y"}, Other: Ref{Namespace: "a", Name: "z"}}
	for range 3 {
		w.Look(now, []Conflict{lasting, brief})
		now = now.Add(time.Second)
	}
	for range 20 { // one that comes and goes all the time is reported once
		w.Look(now, []Conflict{})
		now = now.Add(time.Second)
		w.Look(now, []Conflict{lasting})
		now = now.Add(time.Second)
	}
	if len(reported) != 1 || reported[0] != lasting || strings.Count(log.String(), "level=WARN") != 1 {
		t.Errorf("reported: %v\n%s", reported, log.String())
	}
	for range 7 {
		w.Look(now, []Conflict{brief})
		now = now.Add(time.Second)
	}
	if len(reported) != 2 || reported[1] != brief {
		t.Errorf("one that lasts is not reported: %v", reported)
	}
	var many []Conflict
	for i := range 2 * maxRemembered {
		many = append(many, Conflict{Kind: OfNode, Pod: Ref{Name: fmt.Sprint(i)}})
	}
	w.Look(now, many)
	if len(w.known) > maxRemembered {
		t.Errorf("%d conflicts are remembered", len(w.known))
	}
	w.Look(now.Add(time.Second), nil)
	w.Look(now.Add(2*repeatAfter), nil)
	if len(w.known) != 0 {
		t.Errorf("%d conflicts are remembered after all are gone", len(w.known))
	}
}

func TestReview(t *testing.T) {
	best := "m"
	table := Table[string]{Before: func(a, _ string) bool { return a == best }, Refused: func(netip.Addr, string) bool { return false }}
	a := netip.MustParseAddr("192.0.2.1")
	if from, to := table.Review(a); from != "" || to != "" {
		t.Errorf("no pod claims it: from %q to %q", from, to)
	}
	for _, p := range []string{"a", "m", "z"} {
		table.Resolve(a, p, true)
	}
	best = "z"
	if from, to := table.Review(a); from != "m" || to != "z" || table.Owner(a) != "z" || len(table.Others(a)) != 2 {
		t.Errorf("from %q to %q, others %q", from, to, table.Others(a))
	}
}

func TestMessages(t *testing.T) {
	c := Conflict{Addr: netip.MustParseAddr("192.0.2.1"), Pod: Ref{Namespace: "a", Name: "x"}}
	seen := map[string]bool{}
	for _, c.Kind = range Kinds() {
		c.Other = Ref{Namespace: "b", Name: "y"}
		if c.Kind == OfNode {
			c.Other = Ref{}
		}
		text := c.Message()
		if !strings.HasPrefix(text, "192.0.2.1 of pod a/x") || strings.Contains(text, "pod b/y") != (c.Kind != OfNode) || seen[c.Kind.consequence()] {
			t.Errorf("%s: %s", c.Kind, text)
		}
		seen[c.Kind.consequence()] = true
	}
}
