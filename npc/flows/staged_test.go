package flows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc/flows"
)

// stagedText returns what worlds would do with the connections of the only record.
func stagedText(t *testing.T, s *flows.Store) (out []string) {
	t.Helper()
	records, _ := s.Since(0)
	if len(records) != 1 {
		t.Fatalf("%d records", len(records))
	}
	for _, w := range records[0].Staged {
		out = append(out, fmt.Sprintf("%s: %d %s by %s, %s to %s", w.World, w.Count, w.Verdict, w.Policy, w.First.Format("04:05"), w.Last.Format("04:05")))
	}
	return out
}

// TestS100_StagedVerdictsAreCounted for each world, from when its policies last changed.
func TestS100_StagedVerdictsAreCounted(t *testing.T) {
	s, j := flows.NewStore("node1", 10), newJudge()
	in := func(world, content, policy string) flows.Staged {
		return flows.Staged{World: world, Content: content, Policy: policy, Verdict: flows.Denied}
	}
	for i, c := range []struct {
		name    string
		staged  []flows.Staged
		verdict flows.Verdict
		opened  int
		want    []string
	}{
		{"nothing", nil, flows.Allowed, 1, nil},
		{"one_world", []flows.Staged{in("true", "1", "shop/a")}, flows.Allowed, 2, []string{"true: 2 denied by shop/a, 00:01 to 00:01"}},
		{"again_by_another_policy", []flows.Staged{in("true", "1", "shop/b")}, flows.Allowed, 1, []string{"true: 3 denied by shop/b, 00:01 to 00:02"}},
		{"allowed_there_too", nil, flows.Allowed, 5, []string{"true: 3 denied by shop/b, 00:01 to 00:02"}},
		{"another_world", []flows.Staged{in("w", "7", "shop/c")}, flows.Allowed, 1,
			[]string{"w: 1 denied by shop/c, 00:04 to 00:04", "true: 3 denied by shop/b, 00:01 to 00:02"}},
		{"its_policies_have_changed", []flows.Staged{in("true", "2", "shop/b")}, flows.Allowed, 1,
			[]string{"true: 1 denied by shop/b, 00:05 to 00:05", "w: 1 denied by shop/c, 00:04 to 00:04"}},
		{"the_judge_knows_later_policies", []flows.Staged{in("true", "2", "shop/b")}, flows.Denied, 1,
			[]string{"true: 1 denied by shop/b, 00:05 to 00:05", "w: 1 denied by shop/c, 00:04 to 00:04"}},
	} {
		j.staged, j.verdict = c.staged, c.verdict
		var opened []flows.Connection
		for range c.opened {
			opened = append(opened, between(web1, db))
		}
		s.Add(noon.Add(time.Duration(i)*time.Second), j, flows.Allowed, opened)
		if diff := cmp.Diff(c.want, stagedText(t, s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	before, _ := s.Since(0)
	s.KeepStaged(map[string]string{"true": "3", "w": "7"})
	if diff := cmp.Diff([]string{"w: 1 denied by shop/c, 00:04 to 00:04"}, stagedText(t, s)); diff != "" {
		t.Errorf("after a change (-want +got):\n%s", diff)
	}
	if len(before[0].Staged) != 2 {
		t.Error("what a reader has was changed")
	}
}

// TestWorldsOfARecordAreBounded, and those heard of last stay.
func TestWorldsOfARecordAreBounded(t *testing.T) {
	s, j := flows.NewStore("node1", 10), newJudge()
	for i := range 100 {
		j.staged = []flows.Staged{{World: fmt.Sprint("w", i), Verdict: flows.Denied}}
		s.Add(noon.Add(time.Duration(i)*time.Second), j, flows.Allowed, []flows.Connection{between(web1, db)})
	}
	if got := stagedText(t, s); len(got) != 16 || got[0][:3] != "w99" || got[15][:3] != "w84" {
		t.Errorf("%q", got)
	}
}
