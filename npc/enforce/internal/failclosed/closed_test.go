package failclosed

import (
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
)

// TestWhyTheGateIsClosed shows when unknown addresses are dropped on ingress, and the reason that is given.
func TestWhyTheGateIsClosed(t *testing.T) {
	const waits = "in/new {node: node1}"
	for _, c := range []struct {
		name   string
		mode   enforce.FailClosedMode
		events []string
		facts  func(f *Facts)
		broken string // a watch that has been broken for long
		why    string
	}{
		{name: "open"},
		{name: "not_synced", facts: func(f *Facts) { f.Synced = false }, why: "not all objects are known yet"},
		{name: "opened_by_the_operator", mode: enforce.FailClosedNever, events: []string{waits},
			facts: func(f *Facts) { f.Synced, f.Missing = false, npc.ObjectsMissing }},
		{name: "closed_by_the_operator", mode: enforce.FailClosedAlways, events: []string{waits}, facts: func(f *Facts) { f.Synced = false }, why: "--fail-closed always"},
		{name: "objects_missing", mode: enforce.FailClosedAlways, facts: func(f *Facts) { f.Missing = npc.ObjectsMissing }, why: "not all objects could be read"},
		{name: "the_node_is_missing", facts: func(f *Facts) { f.Missing = npc.NodeMissing }},
		{name: "the_node_is_missing_and_there_are_policies", facts: func(f *Facts) { f.Missing, f.Policies = npc.NodeMissing, 1 },
			why: "not all objects could be read"},
		{name: "a_pod_without_address", events: []string{waits}, why: "in/new has no address yet"},
		{name: "it_has_one_now", events: []string{waits, "in/new {node: node1, addrs: [10.32.1.2]}"}},
		{name: "it_is_gone", events: []string{waits, "delete in/new"}},
		{name: "it_has_finished", events: []string{waits, "in/new {node: node1, finished: true}"}},
		{name: "it_is_elsewhere", events: []string{"in/new {node: node2}"}},
		{name: "it_is_not_isolated", events: []string{"shop/new {node: node1}"}},
		{name: "it_is_isolated_in_the_other_direction", events: []string{"out/new {node: node1}"}},
		{name: "an_address_from_before_a_restart", events: []string{"in/new {node: node1, addrs: [10.32.1.2], staleAddrs: true}"},
			why: "in/new reports an address that it had before it or the node was restarted"},
		{name: "an_address_of_the_node", events: []string{"in/new {node: node1, addrs: [10.32.1.2]}", "node 10.32.1.2"},
			why: "in/new claims an address of this node"},
		{name: "the_first_by_name", events: []string{"in/z {node: node1}", "in/b {node: node1, addrs: [10.32.1.2], staleAddrs: true}",
			"in/x {node: node1}"},
			why: "in/b reports an address that it had before it or the node was restarted"},
		{name: "a_broken_watch", broken: "pods", facts: func(f *Facts) { f.Policies = 1 }, why: "the watch of pods is broken"},
		{name: "a_broken_watch_without_policies", broken: "pods"},
		{name: "a_broken_watch_of_namespaces", broken: "namespaces", facts: func(f *Facts) { f.Policies = 1 }},
		{name: "a_pod_is_preferred_to_a_watch", events: []string{waits}, broken: "pods", facts: func(f *Facts) { f.Policies = 1 },
			why: "in/new has no address yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t, func(config *enforce.Config) {
				if c.mode != "" {
					config.FailClosed = c.mode
				}
			}, c.events...)
			if c.broken != "" {
				w.Watches.Set(c.broken, false, w.facts.Now.Add(-brokenAfter))
			}
			if c.facts != nil {
				c.facts(&w.facts)
			}
			want := ""
			if c.why != "" {
				want = "unknown addresses in 10.32.1.0/24, fd32:1::/64"
			}
			if what, why := w.Closed(npc.Ingress, w.facts); what != want || why != c.why {
				t.Errorf("dropped: %q, because %q; want %q, because %q", what, why, want, c.why)
			}
		})
	}
	w := newHarness(t, func(c *enforce.Config) { c.PodRanges = nil }, waits)
	if what, why := w.Closed(npc.Ingress, w.facts); what != "" || why != "" || !w.Ranges.Unknown() {
		t.Errorf("without a range dropped: %q, because %q", what, why)
	}
}

// TestWaiting counts the isolated local pods that wait for an address, by direction.
func TestWaiting(t *testing.T) {
	w := newHarness(t, nil)
	for _, c := range []struct {
		event       string
		to, fromPod int
	}{
		{"in/a {node: node1}", 1, 0}, {"out/b {node: node1}", 1, 1}, {"both/c {node: node1}", 2, 2}, {"shop/d {node: node1}", 2, 2},
		{"both/c {node: node1, addrs: [10.32.1.2]}", 1, 1}, {"node 10.32.1.2", 2, 2}, {"node 10.32.1.1", 1, 1}, {"delete in/a", 0, 1},
		{"delete out/b", 0, 0},
	} {
		w.do(c.event)
		if to, from := w.Waiting(npc.Ingress), w.Waiting(npc.Egress); to != c.to || from != c.fromPod {
			t.Errorf("after %s %d and %d pods wait, want %d and %d", c.event, to, from, c.to, c.fromPod)
		}
	}
}

// TestWatches shows which watch counts as broken, and when the next one does.
func TestWatches(t *testing.T) {
	var w Watches
	at := time.Unix(1000, 0)
	for _, c := range []struct {
		after   time.Duration
		kind    string
		ok      bool
		changed bool
		broken  string
		next    int // deadlines
	}{
		{0, "pods", true, false, "", 0},
		{0, "pods", false, true, "", 1},
		{time.Second, "pods", false, false, "", 1},
		{time.Second, "networkpolicies", false, true, "", 2},
		{brokenAfter - time.Nanosecond, "pods", false, false, "", 2},
		{brokenAfter, "pods", false, false, "the watch of pods is broken", 2},
		{brokenAfter + time.Second, "pods", false, false, "the watch of networkpolicies is broken", 2},
		{brokenAfter + time.Second, "networkpolicies", true, true, "the watch of pods is broken", 1},
		{brokenAfter + time.Second, "namespaces", false, true, "the watch of pods is broken", 2},
		{time.Hour, "pods", true, true, "", 1},
		{time.Hour, "pods", true, false, "", 1},
	} {
		now := at.Add(c.after)
		changed := w.Set(c.kind, c.ok, now)
		if broken := w.broken(now); changed != c.changed || broken != c.broken || len(w.deadlines()) != c.next {
			t.Errorf("after %s, %s works: %t: changed %t, %q, %v", c.after, c.kind, c.ok, changed, broken, w.deadlines())
		}
	}
}

// TestNextDeadline shows when time alone changes what is dropped: when a watch has been broken for long, and when a pod
// was deleted long ago.
func TestNextDeadline(t *testing.T) {
	w := newHarness(t, nil, "in/a {node: node1, addrs: [10.32.1.2]}", "in/b {node: node1, addrs: [10.32.1.3]}",
		"shop/free {node: node1, addrs: [10.32.1.4]}")
	start := w.facts.Now
	for _, c := range []struct {
		what  string
		do    func()
		after time.Duration // of the next change; 0 if there is none
	}{
		{"nothing", func() {}, 0},
		{"a pod vanishes that nothing isolates", func() { w.do("vanish shop/free") }, 0},
		{"a pod vanishes", func() { w.do("vanish in/a") }, deletedFor},
		{"a watch breaks", func() { w.Watches.Set("pods", false, w.facts.Now) }, brokenAfter},
		{"another pod vanishes", func() { w.facts.Now = start.Add(time.Second); w.do("vanish in/b") }, brokenAfter},
		{"the watch has been broken for long", func() { w.facts.Now = start.Add(brokenAfter); w.do() }, deletedFor},
		{"a pod has the address", func() { w.do("in/c {node: node1, addrs: [10.32.1.2]}") }, deletedFor + time.Second},
		{"all is long ago", func() { w.facts.Now = start.Add(time.Hour); w.do() }, 0},
	} {
		c.do()
		got := time.Duration(0)
		if next := w.NextDeadline(); !next.IsZero() {
			got = next.Sub(start)
		}
		if got != c.after {
			t.Errorf("%s: the next change is after %s, want %s", c.what, got, c.after)
		}
	}
}
