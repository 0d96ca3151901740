package span_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/weave-npc/weave-npc/npc/source/span"
)

const (
	policies   = "networkpolicies"
	namespaces = "namespaces"
)

// TestS64_TheGateOfASpan lets policies through as marks allow, and none that a mark allowed before the pods became others.
func TestS64_TheGateOfASpan(t *testing.T) {
	type step struct {
		do   func(g *span.Gate, marks map[string]*span.Mark)
		open string // the versions of policies that may pass; before the last step no others are asked for
	}
	mark := func(name string, upTo span.Versions) func(*span.Gate, map[string]*span.Mark) {
		return func(g *span.Gate, marks map[string]*span.Mark) {
			if marks[name] = span.MarkOf(g.Mark("1", upTo)); upTo == nil {
				marks[name] = span.MarkOf(g.MarkWhole("1"))
			}
		}
	}
	reach := func(name string) func(*span.Gate, map[string]*span.Mark) {
		return func(g *span.Gate, marks map[string]*span.Mark) { g.Reach(marks[name]) }
	}
	limit := func(g *span.Gate, _ map[string]*span.Mark) { g.Limit() }
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{"nothing_before_the_first_mark", []step{{limit, ""}}},
		{"up_to_a_mark", []step{{mark("a", span.Versions{policies: "9"}), ""}, {reach("a"), "8 9"}, {mark("b", span.Versions{policies: "10"}), "8 9"},
			{reach("b"), "8 9 10"}}},
		{"not_by_a_mark_of_another_kind", []step{{mark("a", span.Versions{namespaces: "20"}), ""}, {reach("a"), ""}}},
		{"all_behind_all_pods", []step{{mark("a", nil), ""}, {reach("a"), "8 9 10"}}},
		{"not_by_a_mark_from_before", []step{{mark("a", span.Versions{policies: "10"}), ""}, {limit, ""}, {reach("a"), ""}}},
		{"not_by_all_pods_from_before", []step{{mark("a", nil), ""}, {limit, ""}, {reach("a"), ""}}},
		{"what_passed_stays_open", []step{{mark("a", span.Versions{policies: "8"}), ""}, {reach("a"), "8"}, {limit, "8"}}},
		{"what_could_have_passed_does_not", []step{{mark("a", nil), ""}, {reach("a"), ""}, {limit, ""}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, marks := span.NewGate(), map[string]*span.Mark{}
			for i, s := range test.steps {
				s.do(g, marks)
				var open []string
				for _, version := range []string{"8", "9", "10"} {
					if strings.Contains(s.open, version) || i == len(test.steps)-1 {
						if passes(g, version) {
							open = append(open, version)
						}
					}
				}
				if got := strings.Join(open, " "); got != s.open {
					t.Errorf("step %d: open for %q, want %q", i, got, s.open)
				}
			}
		})
	}
}

// passes reports whether a policy may pass at once.
func passes(g *span.Gate, version string) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return g.Await(ctx, policies, version)
}

// TestS64_TheGateWakes whoever waits when it opens.
func TestS64_TheGateWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := span.NewGate()
		passed := false
		go func() { passed = g.Await(t.Context(), policies, "12") }()
		synctest.Wait()
		g.Reach(span.MarkOf(g.Mark("1", span.Versions{policies: "11"})))
		synctest.Wait()
		if passed {
			t.Error("open for 12 at 11")
		}
		g.Reach(span.MarkOf(g.Mark("1", span.Versions{policies: "12"})))
		synctest.Wait()
		if !passed || g.Wanted()[policies] != "12" {
			t.Errorf("closed for 12 at 12; passed are %v", g.Wanted())
		}
	})
}

func pod(name string, uid types.UID, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uid, ResourceVersion: version}}
}

func text(e watch.Event) string {
	p := e.Object.(*corev1.Pod)
	return fmt.Sprintf("%s %s %s %s", e.Type, p.Name, p.UID, p.ResourceVersion)
}

// TestS64_NothingOfASpanGoesBack passes on what is new of each pod alone.
func TestS64_NothingOfASpanGoesBack(t *testing.T) {
	k := span.NewKnown()
	for i, step := range []struct{ event, want string }{
		{"ADDED a 1 10", "ADDED a 1 10"},
		{"ADDED a 1 10", ""},
		{"ADDED a 1 12", "MODIFIED a 1 12"},
		{"MODIFIED a 1 11", ""},
		{"ADDED b 2 9", "ADDED b 2 9"},
		{"DELETED c 3 9", ""},
		{"DELETED a 0 11", ""}, // of the same name, before
		{"DELETED a 1 11", "DELETED a 1 11"},
		{"MODIFIED a 4 14", "ADDED a 4 14"},
		{"begin", ""},
		{"ADDED a 4 14", ""},
		{"ADDED d 5 3", "ADDED d 5 3"},
		{"end", "DELETED b 2 9"},
	} {
		got := ""
		switch step.event {
		case "begin":
			k.Begin()
		case "end":
			for _, e := range k.End() {
				got += text(e)
			}
		default:
			part := strings.Fields(step.event)
			if e, is := k.Take(watch.Event{Type: watch.EventType(part[0]), Object: pod(part[1], types.UID(part[2]), part[3])}); is {
				got = text(e)
			}
		}
		if got != step.want {
			t.Errorf("%d: %s passes %q on, want %q", i, step.event, got, step.want)
		}
	}
	if !k.Has(pod("d", "", "")) || k.Has(pod("b", "", "")) {
		t.Error("not known what was passed on")
	}
}

// TestS64_APodThatLeavesTheSpan stays until the policies have arrived that do not name it.
func TestS64_APodThatLeavesTheSpan(t *testing.T) {
	start := time.Now()
	left := func(l *span.Leaving) {
		p := pod("a", "1", "10")
		p.Annotations = map[string]string{"span.weave-npc/left": "true"}
		if !l.Keep(watch.Event{Type: watch.Deleted, Object: p}, start) {
			t.Error("is deleted at once")
		}
		if due := l.Due(nil, span.Versions{policies: "20"}, start); len(due) != 0 {
			t.Error("is deleted at the first mark")
		}
	}
	for _, test := range []struct {
		name    string
		then    watch.EventType // what happens to the pod meanwhile, if anything
		arrived string
		after   time.Duration
		want    int
	}{
		{"the_policies_have_arrived", "", "20", time.Second, 1},
		{"they_may_not_have_been_handled", "", "20", 100 * time.Millisecond, 0},
		{"they_have_not_arrived", "", "19", 2 * time.Second, 0},
		{"they_do_not_arrive", "", "19", 6 * time.Second, 1},
		{"it_returns", watch.Added, "20", time.Second, 0},
		{"it_is_deleted", watch.Deleted, "20", time.Second, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := span.NewLeaving()
			left(l)
			if test.then != "" && l.Keep(watch.Event{Type: test.then, Object: pod("a", "1", "11")}, start) {
				t.Error("is kept")
			}
			due := l.Due(span.Versions{policies: test.arrived}, span.Versions{policies: "30"}, start.Add(test.after))
			if len(due) != test.want {
				t.Errorf("%d pods are deleted, want %d", len(due), test.want)
			}
		})
	}
}

// TestS64_TheSelectorOfASpan is one that a field selector's grammar allows.
func TestS64_TheSelectorOfASpan(t *testing.T) {
	got := span.Selector("node-1.example", span.Versions{policies: "12", namespaces: "7"})
	if want := "span=node-1.example,after.namespaces=7,after.networkpolicies=12"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
