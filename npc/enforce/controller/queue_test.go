package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// put adds events that are written as "policy/a", "policy/namespace/a" or "pod/a", with "-" in front if the object ends, and ":UID" behind.
func put(q *changeQueue, at int, what string, weight int, out *[]string) {
	kind, key, uid, ends := podChanges, what, "", false
	if what[0] == '-' {
		key, ends = what[1:], true
	}
	if i := slices.Index([]byte(key), ':'); i >= 0 {
		key, uid = key[:i], key[i+1:]
	}
	if key[:2] == "po" && key[2] == 'l' {
		kind = policyChanges
	}
	namespace := ""
	if parts := strings.Split(key, "/"); len(parts) == 3 {
		namespace = parts[1]
	}
	q.Put(queuedChange{Kind: kind, Key: key, Namespace: namespace, UID: types.UID(uid), Ends: ends, Weight: weight, Apply: func() { *out = append(*out, what) }}, time.Unix(int64(at), 0))
}

func take(q *changeQueue, last queuedKind, out *[]string) (queuedKind, []string) {
	*out = nil
	kind := noKind
	for _, e := range q.Take(last) {
		kind = e.Kind
		e.Apply()
	}
	return kind, *out
}

func TestKindsAlternate(t *testing.T) {
	var q changeQueue
	var out []string
	if kind, got := take(&q, noKind, &out); kind != noKind || got != nil || !q.Empty() || !q.Oldest().IsZero() {
		t.Errorf("an empty queue has %v", got)
	}
	last, served := noKind, 0
	for i := range 100 { // a policy is edited before each turn, and a pod event waits now and then
		put(&q, i, fmt.Sprintf("policy/%d", i), 1, &out)
		pod := i%3 == 0
		if pod {
			put(&q, i, fmt.Sprintf("pod/%d", i), 1, &out)
		}
		for range 2 { // the pod event waits for one turn of the policies at most
			kind, got := take(&q, last, &out)
			if last = kind; kind == podChanges {
				served += len(got)
			}
			put(&q, i, fmt.Sprintf("policy/%d again", i), 1, &out)
		}
		if pod && q.lines[podChanges].keys != nil {
			t.Fatalf("pod %d still waits", i)
		}
	}
	if served != 34 {
		t.Errorf("%d of 34 pod events had their turn", served)
	}
}

func TestTheOldestComeFirstAndNotTooManyAtOnce(t *testing.T) {
	var q changeQueue
	var out []string
	for i, weight := range []int{maxWeight / 2, maxWeight / 2, 1, 2 * maxWeight, 1} {
		put(&q, 10+i, fmt.Sprintf("policy/%d", i), weight, &out)
	}
	put(&q, 20, "policy/0", maxWeight/4, &out) // keeps its place
	if at := q.Oldest(); at != time.Unix(10, 0) {
		t.Errorf("the oldest is of %v", at)
	}
	for _, want := range [][]string{{"policy/0", "policy/0"}, {"policy/1", "policy/2"}, {"policy/3"}, {"policy/4"}, nil} {
		if _, got := take(&q, policyChanges, &out); !slices.Equal(got, want) {
			t.Errorf("took %v, not %v", got, want)
		}
	}
	if !q.Empty() {
		t.Error("something is left")
	}
}

func TestNamespacesTakeTurns(t *testing.T) {
	var q changeQueue
	var out []string
	heavy := func(names ...string) {
		for _, name := range names {
			put(&q, 0, "policy/"+name, maxWeight, &out)
		}
	}
	expect := func(want ...string) {
		t.Helper()
		for i := range want {
			want[i] = "policy/" + want[i]
		}
		if _, got := take(&q, podChanges, &out); !slices.Equal(got, want) {
			t.Errorf("took %v, not %v", got, want)
		}
	}
	q.Passed(queuedChange{Kind: policyChanges, Namespace: "a", Weight: maxWeight})
	heavy("a/2", "a/3", "a/4")
	heavy("b/1") // the first of its namespace, while others wait
	expect("b/1")
	heavy("c/1", "b/2", "a/5")
	expect("c/1")
	expect("a/2")
	for i := range 3 { // many that are light are as much as a part of a heavy one
		put(&q, 0, fmt.Sprintf("policy/c/light%d", i), 1, &out)
	}
	heavy("a/1")
	expect("b/2")
	expect("c/light0", "c/light1", "c/light2")
	for _, want := range []string{"a/3", "a/4", "a/5", "a/1"} {
		expect(want)
	}
	if !q.Empty() || len(q.lines[policyChanges].next) > 0 {
		t.Error("an empty queue remembers something")
	}
}

func TestWhatStillMattersOfAnObject(t *testing.T) {
	for name, c := range map[string]struct{ put, want []string }{
		"edits":              {[]string{"pod/a:1", "pod/a:1", "pod/a:1"}, []string{"pod/a:1", "pod/a:1"}},
		"came and went":      {[]string{"pod/a:1", "-pod/a:1"}, []string{"pod/a:1", "-pod/a:1"}},
		"whichever went":     {[]string{"pod/a:1", "-pod/a"}, []string{"pod/a:1", "-pod/a"}},
		"a late end":         {[]string{"pod/a:2", "-pod/a:1"}, []string{"pod/a:2"}},
		"came again":         {[]string{"-pod/a:1", "pod/a:2"}, []string{"pod/a:2"}},
		"many ends":          {[]string{"-pod/a:1", "-pod/a:2", "-pod/a:3", "-pod/a:4", "-pod/a:5"}, []string{"-pod/a:2", "-pod/a:3", "-pod/a:4", "-pod/a:5"}},
		"an end after edits": {[]string{"pod/a:1", "pod/a:2", "-pod/a:2"}, []string{"pod/a:1", "pod/a:2", "-pod/a:2"}},
	} {
		t.Run(name, func(t *testing.T) {
			var q changeQueue
			var out []string
			for i, what := range c.put {
				put(&q, i, what, 1, &out)
			}
			if _, got := take(&q, policyChanges, &out); !slices.Equal(got, c.want) {
				t.Errorf("took %v, not %v", got, c.want)
			}
		})
	}
}
