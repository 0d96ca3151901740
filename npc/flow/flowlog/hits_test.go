package flowlog_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// rule makes a rule of "egress 2 of shop/web: content", which may begin with a tier.
func rule(text string) (a flowlog.Applied) {
	place, content, _ := strings.Cut(text, ": ")
	a.Content = content
	if tier, rest, ok := strings.Cut(place, "/"); ok && (tier == "Admin" || tier == "Baseline") {
		a.Tier, place = tier, rest
	}
	if _, err := fmt.Sscanf(place, "%s %d of %s", &a.Direction, &a.Number, &a.Policy); err != nil {
		panic(err)
	}
	return a
}

func rules(texts ...string) (all []flowlog.Applied) {
	for _, text := range texts {
		all = append(all, rule(text))
	}
	return all
}

// onPort returns connections to a port.
func onPort(port uint16, number int) (all []flowlog.Connection) {
	c := between(web1, db)
	c.Service.Port = port
	for range number {
		all = append(all, c)
	}
	return all
}

// lines returns hits as texts.
func lines(h flowlog.Hits) (out []string) {
	for _, r := range h.Rules {
		out = append(out, fmt.Sprintf("%d %s by %s %s, %s to %s", r.Count, r.Verdict, r.RuleRef, r.Content, r.First.Format("15:04"), r.Last.Format("15:04")))
	}
	return out
}

// TestHitsAreCounted for each rule that decides: of both directions if both ends are of this node, and of none if that
// is not known.
func TestHitsAreCounted(t *testing.T) {
	s, j := flowlog.NewStore("node1", 10), newEvaluator()
	ports := map[uint16][]flowlog.Applied{1: rules("egress 1 of shop/web: a", "ingress 2 of shop/db: b"), 2: rules("ingress 2 of shop/db: b"),
		3: rules("Admin/egress 1 of guard: c"), 5: rules("ingress 3 of shop/db: b"), 6: rules("ingress 2 of shop/db: new")}
	j.by = func(port uint16) []flowlog.Applied { return ports[port] }
	for minute, step := range []struct {
		port               uint16
		number             int
		evaluated, verdict flowlog.Verdict
	}{
		{1, 3, flowlog.Allowed, flowlog.Allowed}, {2, 2, flowlog.Allowed, flowlog.Allowed}, {3, 1, flowlog.Denied, flowlog.Denied},
		{4, 9, flowlog.Denied, flowlog.Denied},    // no rule decided
		{1, 100, flowlog.Denied, flowlog.Allowed}, // later policies than those that the packets met
		{5, 4, flowlog.Allowed, flowlog.Allowed},  // the rule has another place
		{6, 1, flowlog.Allowed, flowlog.Allowed},  // another rule has its place
	} {
		j.verdict = step.evaluated
		s.Add(noon.Add(time.Duration(minute)*time.Minute), j, step.verdict, onPort(step.port, step.number))
	}
	want := []string{"3 allowed by egress rule 1 of policy shop/web a, 12:00 to 12:00",
		"1 denied by egress rule 1 of Admin policy guard c, 12:02 to 12:02",
		"9 allowed by ingress rule 3 of policy shop/db b, 12:00 to 12:05", "1 allowed by ingress rule 2 of policy shop/db new, 12:06 to 12:06"}
	got := s.Hits()
	if diff := cmp.Diff(want, lines(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Node != "node1" || !got.Complete.Equal(got.Since) || time.Since(got.Since) > time.Minute {
		t.Errorf("%+v", got)
	}
}

// TestHitsAreCountedAtTheSameTime as they are read and kept: none is lost.
func TestHitsAreCountedAtTheSameTime(t *testing.T) {
	const adders, rounds = 4, 500
	dir := t.TempDir()
	s := flowlog.NewStore("node1", 10)
	f := newFile(t, dir, s)
	var adding, reading sync.WaitGroup
	ended := make(chan struct{})
	for i := range adders {
		adding.Go(func() {
			j := newEvaluator()
			j.by = func(uint16) []flowlog.Applied {
				return rules("egress 1 of shop/all: a", fmt.Sprintf("ingress 1 of shop/p%d: b", i))
			}
			for range rounds {
				s.Add(noon, j, flowlog.Allowed, onPort(80, 2))
			}
		})
	}
	reading.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
			}
			if _, err := f.Save(); err != nil {
				t.Error(err)
			}
			for _, r := range s.Hits().Rules {
				if r.Count > adders*rounds*2 {
					t.Errorf("%+v", r)
				}
			}
		}
	})
	adding.Wait()
	close(ended)
	reading.Wait()
	if _, err := f.Save(); err != nil {
		t.Fatal(err)
	}
	again := flowlog.NewStore("node1", 10)
	if err := newFile(t, dir, again).LoadHits(); err != nil {
		t.Fatal(err)
	}
	for _, r := range again.Hits().Rules {
		want := uint64(rounds * 2)
		if r.Policy == "shop/all" {
			want *= adders
		}
		if r.Count != want {
			t.Errorf("%s has %d hits, not %d", r.RuleRef, r.Count, want)
		}
	}
	if n := len(again.Hits().Rules); n != adders+1 {
		t.Errorf("%d rules", n)
	}
}

// TestTheRuleOfTheOldestHitGoes when there are too many. The answer reports the time since which none is missing.
func TestTheRuleOfTheOldestHitGoes(t *testing.T) {
	const limit = 10_000
	s, j := flowlog.NewStore("node1", 10), newEvaluator()
	began := s.Hits().Since
	policy := 0
	j.by = func(uint16) []flowlog.Applied { return rules(fmt.Sprintf("ingress 1 of shop/p%d: a", policy)) }
	at := func(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }
	for ; policy < limit; policy++ {
		s.Add(at(policy), j, flowlog.Allowed, onPort(80, 1))
	}
	policy = 0 // it is hit again, so that 1, 2 and 3 go
	s.Add(at(limit), j, flowlog.Allowed, onPort(80, 1))
	if h := s.Hits(); h.Evicted != 0 || !h.Complete.Equal(began) {
		t.Errorf("%d rules have gone, and hits since %s are there", h.Evicted, h.Complete)
	}
	for policy = limit; policy < limit+3; policy++ {
		s.Add(at(policy+1), j, flowlog.Allowed, onPort(80, 1))
	}
	h := s.Hits()
	if len(h.Rules) != limit || h.Evicted != 3 || s.Counts().EvictedRules != 3 || !h.Since.Equal(began) || !h.Complete.Equal(at(3)) {
		t.Errorf("%d rules, %d have gone, hits since %s are there", len(h.Rules), h.Evicted, h.Complete)
	}
	if first, kept := h.Rules[0], h.Rules[limit-4]; first.Policy != "shop/p4" || kept.Policy != "shop/p0" || kept.Count != 2 {
		t.Errorf("%+v, %+v", first, kept)
	}
}

// TestHitsOutliveARestart as they were; from a file that is not whole they are counted from zero, and the records stay.
func TestHitsOutliveARestart(t *testing.T) {
	dir := t.TempDir()
	s, j := flowlog.NewStore("node1", 10), newEvaluator()
	j.by = func(port uint16) []flowlog.Applied {
		return rules(fmt.Sprintf("Baseline/ingress %d of p%d: a", port, port))
	}
	f := newFile(t, dir, s)
	if err := f.LoadHits(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "hits.json")
	save := func(f *flowlog.File) []byte {
		if _, err := f.Save(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	save(f)
	empty, _ := os.Stat(path)
	for port := range uint16(3) {
		s.Add(noon.Add(time.Duration(port)*time.Minute), j, flowlog.Allowed, onPort(port+1, 5))
	}
	text := save(f)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || os.SameFile(info, empty) {
		t.Errorf("%v, %v: it is not replaced", info, err)
	}
	want := s.Hits()
	load := func(text []byte) (*flowlog.Store, error) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		again := flowlog.NewStore("node1", 10)
		f := newFile(t, dir, again)
		if _, err := f.Load(); err != nil {
			t.Fatal(err)
		}
		return again, f.LoadHits()
	}
	again, err := load(text)
	if diff := cmp.Diff(want, again.Hits()); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	again.Add(noon.Add(time.Hour), j, flowlog.Allowed, onPort(1, 2))
	if got := lines(again.Hits()); len(got) != 3 || got[2] != "7 allowed by ingress rule 1 of Baseline policy p1 a, 12:00 to 13:00" {
		t.Error(got)
	}
	for name, broken := range map[string][]byte{"half of it": text[:len(text)/2], "nothing": nil, "records": []byte(`{"count":1}` + "\n"),
		"no verdict": bytes.Replace(text, []byte("allowed"), []byte("maybe"), 1), "no time": bytes.Replace(text, []byte(`"since"`), []byte(`"until"`), 1),
		"a bell": bytes.Replace(text, []byte(`"p1"`), []byte(`"p\u0007"`), 1), "too much": append([]byte(strings.Repeat(" ", 10<<20)), text...)} {
		again, err := load(broken)
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if h := again.Hits(); len(h.Rules) != 0 || h.Since.Equal(want.Since) || again.Counts().Held != 3 {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

// TestMergedHits of nodes are the sum, with the first and the last time and the place that the rule has now.
func TestMergedHits(t *testing.T) {
	hit := func(text string, count uint64, first, last int) flowlog.Hit {
		return flowlog.Hit{Applied: rule(text), Verdict: flowlog.Allowed, Count: count, First: noon.Add(time.Duration(first) * time.Minute),
			Last: noon.Add(time.Duration(last) * time.Minute)}
	}
	a := flowlog.Hits{Node: "a", Since: noon, Complete: noon.Add(time.Second), Evicted: 1,
		Rules: []flowlog.Hit{hit("ingress 1 of shop/db: x", 5, 1, 9), hit("egress 1 of shop/db: x", 1, 2, 3)}}
	b := flowlog.Hits{Node: "b", Since: noon.Add(-time.Hour), Complete: noon.Add(-time.Hour), Evicted: 2,
		Rules: []flowlog.Hit{hit("ingress 2 of shop/db: x", 7, 0, 20), hit("ingress 1 of shop/db: y", 2, 4, 5)}}
	want := flowlog.Hits{Since: b.Since, Complete: a.Complete, Evicted: 3,
		Rules: []flowlog.Hit{hit("egress 1 of shop/db: x", 1, 2, 3), hit("ingress 1 of shop/db: y", 2, 4, 5), hit("ingress 2 of shop/db: x", 12, 0, 20)}}
	for _, all := range [][]flowlog.Hits{{a, b}, {b, a}} {
		if diff := cmp.Diff(want, flowlog.MergeHits(all)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
