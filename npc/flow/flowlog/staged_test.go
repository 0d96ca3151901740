package flowlog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// stagedText returns what groups would do with the connections of the only record.
func stagedText(t *testing.T, s *flowlog.Store) (out []string) {
	t.Helper()
	records, _ := s.Since(0)
	if len(records) != 1 {
		t.Fatalf("%d records", len(records))
	}
	for _, w := range records[0].Staged {
		out = append(out, fmt.Sprintf("%s: %d %s by %s, %s to %s", w.Group, w.Count, w.Verdict, w.Policy, w.First.Format("04:05"), w.Last.Format("04:05")))
	}
	return out
}

// TestS100_StagedVerdictsAreCounted for each group, from when its policies last changed.
func TestS100_StagedVerdictsAreCounted(t *testing.T) {
	s, j := flowlog.NewStore("node1", 10), newEvaluator()
	in := func(group, content, policy string) flowlog.Staged {
		return flowlog.Staged{Group: group, Content: content, Policy: policy, Verdict: flowlog.Denied}
	}
	for i, c := range []struct {
		name    string
		staged  []flowlog.Staged
		verdict flowlog.Verdict
		opened  int
		want    []string
	}{
		{"nothing", nil, flowlog.Allowed, 1, nil},
		{"one_group", []flowlog.Staged{in("true", "1", "shop/a")}, flowlog.Allowed, 2, []string{"true: 2 denied by shop/a, 00:01 to 00:01"}},
		{"again_by_another_policy", []flowlog.Staged{in("true", "1", "shop/b")}, flowlog.Allowed, 1, []string{"true: 3 denied by shop/b, 00:01 to 00:02"}},
		{"allowed_there_too", nil, flowlog.Allowed, 5, []string{"true: 3 denied by shop/b, 00:01 to 00:02"}},
		{"another_group", []flowlog.Staged{in("w", "7", "shop/c")}, flowlog.Allowed, 1,
			[]string{"w: 1 denied by shop/c, 00:04 to 00:04", "true: 3 denied by shop/b, 00:01 to 00:02"}},
		{"its_policies_have_changed", []flowlog.Staged{in("true", "2", "shop/b")}, flowlog.Allowed, 1,
			[]string{"true: 1 denied by shop/b, 00:05 to 00:05", "w: 1 denied by shop/c, 00:04 to 00:04"}},
		{"the_evaluator_has_later_policies", []flowlog.Staged{in("true", "2", "shop/b")}, flowlog.Denied, 1,
			[]string{"true: 1 denied by shop/b, 00:05 to 00:05", "w: 1 denied by shop/c, 00:04 to 00:04"}},
	} {
		j.staged, j.verdict = c.staged, c.verdict
		var opened []flowlog.Connection
		for range c.opened {
			opened = append(opened, between(web1, db))
		}
		s.Add(noon.Add(time.Duration(i)*time.Second), j, flowlog.Allowed, opened)
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

// TestGroupsOfARecordAreBounded: those that were updated most recently stay.
func TestGroupsOfARecordAreBounded(t *testing.T) {
	s, j := flowlog.NewStore("node1", 10), newEvaluator()
	for i := range 100 {
		j.staged = []flowlog.Staged{{Group: fmt.Sprint("w", i), Verdict: flowlog.Denied}}
		s.Add(noon.Add(time.Duration(i)*time.Second), j, flowlog.Allowed, []flowlog.Connection{between(web1, db)})
	}
	if got := stagedText(t, s); len(got) != 16 || got[0][:3] != "w99" || got[15][:3] != "w84" {
		t.Errorf("%q", got)
	}
}
