package enforce

import (
	"slices"
	"strings"
	"testing"
)

// TestEachReasonIsReportedOnce follows the reports about two policies.
func TestEachReasonIsReportedOnce(t *testing.T) {
	r := NewInvalidPolicies()
	put := func(key, reason string) func() {
		return func() { r.Put(key, InvalidPolicy{Name: key, Reason: reason}) }
	}
	for _, step := range []struct {
		name string
		do   []func()
		want string // reported
		left int    // recorded
	}{
		{"nothing", nil, "", 0},
		{"two policies", []func(){put("a", "x"), put("b", "x")}, "a:x b:x", 2},
		{"the same again", []func(){put("a", "x"), put("b", "x")}, "", 2},
		{"another reason", []func(){put("a", "y")}, "a:y", 2},
		{"two reasons before they are taken", []func(){put("a", "z"), put("a", "x")}, "a:x", 2},
		{"cleared before it is taken", []func(){put("a", "y"), func() { r.Clear("a") }}, "", 1},
		{"broken again", []func(){put("a", "y")}, "a:y", 2},
		{"cleared and broken for the same reason", []func(){func() { r.Clear("a") }, put("a", "y")}, "a:y", 2},
		{"gone before it is taken", []func(){put("b", "y"), func() { r.Remove("b") }}, "b:y", 1},
		{"there again", []func(){put("b", "y")}, "b:y", 2},
		{"gone", []func(){func() { r.Remove("a") }, func() { r.Remove("b") }, func() { r.Remove("never there") }}, "", 0},
	} {
		for _, do := range step.do {
			do()
		}
		var got []string
		for _, p := range r.Take() {
			got = append(got, p.Name+":"+p.Reason)
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != step.want || r.Len() != step.left {
			t.Errorf("%s: reported %q, want %q; %d are recorded, want %d", step.name, text, step.want, r.Len(), step.left)
		}
	}
}
