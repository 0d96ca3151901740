package explain_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// later adds a pod that starts later than those of fixture.Pod.
func (w harness) later(facts string) {
	p := fixture.Pod(facts)
	p.Started = time.Unix(9, 0)
	w.SetPod(p)
}

// isolate adds a policy that isolates the pods of an app for ingress, and allows nothing.
func (w harness) isolate(app string) {
	w.Helper()
	w.policy("a/deny", `{podSelector: {matchLabels: {app: `+app+`}}, policyTypes: [Ingress]}`)
}

// expectIngress compares the ingress of a pod or an address from a/client.
func (w harness) expectIngress(to string, want explain.Side) {
	w.Helper()
	got := w.verdict("a/client", to).Ingress
	want.Direction, got.Policies = got.Direction, nil
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(explain.Side{})); diff != "" {
		w.Errorf("to %s: -want +got:\n%s", to, diff)
	}
}

// TestS72_TwoPodsOfANodeClaimOneAddress shows that nothing is allowed in a direction that a rival of the owner is
// isolated in, and that the answer names both.
func TestS72_TwoPodsOfANodeClaimOneAddress(t *testing.T) {
	const conflict = "10.32.1.9 of pod a/later, contradicted by pod a/old: two pods of this node claim one address: " +
		"nothing is allowed in a direction that either is isolated in"
	free := explain.Side{Pod: "a/later", Allowed: true, Reason: "not isolated", Conflict: conflict}
	closed := explain.Side{Pod: "a/later", Reason: "conflicting address", Conflict: conflict}
	for _, c := range []struct {
		name, isolates, old, to string
		want                    explain.Side
	}{
		{"no_pod_is_isolated", "none", "node1", "a/later", free},
		{"the_rival_is_isolated", "old", "node1", "a/later", closed},
		{"the_rival_is_asked_about", "old", "node1", "a/old", closed},
		{"the_address_is_asked_about", "old", "node1", "10.32.1.9", closed},
		{"the_owner_is_isolated", "later", "node1", "a/later", explain.Side{Pod: "a/later", Reason: "no rule allows it", Conflict: conflict}},
		{"the_rival_terminates", "old", "node1 Deleting", "a/later", closed},
		{"it_is_being_replaced", "none", "node1 Deleting", "a/later", explain.Side{Pod: "a/later", Allowed: true, Reason: "not isolated"}},
		{"the_rival_is_on_another_node", "old", "node2", "a/later", explain.Side{Pod: "a/later", Allowed: true, Reason: "not isolated"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t)
			w.SetPod(fixture.Pod("a/old 10.32.1.9 app=old " + c.old))
			w.later("a/later node1 10.32.1.9 app=later")
			w.isolate(c.isolates)
			w.expectIngress(c.to, c.want)
		})
	}
}

// TestS72_APodClaimsAnAddressOfItsNode shows that the pod counts as waiting for its address, and that objects of other
// pods take none from it.
func TestS72_APodClaimsAnAddressOfItsNode(t *testing.T) {
	const conflict = "10.32.1.9 of pod a/x: the address is this node's: the pod counts as waiting for its address"
	own := fixture.Addrs("10.32.1.9")
	closed := explain.Side{Pod: "a/x", Reason: "waiting for its address", Conflict: conflict}
	for _, c := range []struct {
		name, isolates string
		change         func(harness)
		want           explain.Side
	}{
		{"by_its_own_status", "x", func(w harness) { w.SetPod(fixture.Pod("a/x node1@10.32.1.9 10.32.1.9 app=x")) }, closed},
		{"by_the_node", "x", func(w harness) { w.SetNodeAddrs("node1", own) }, closed},
		{"added_to_others_of_the_node", "x", func(w harness) {
			w.SetNodeAddrs("node1", own)
			w.AddNodeAddrs("node1", fixture.Addrs("172.31.0.1"))
		}, closed},
		{"without_isolation", "none", func(w harness) { w.SetNodeAddrs("node1", own) },
			explain.Side{Pod: "a/x", Allowed: true, Reason: "not isolated", Conflict: conflict}},
		{"by_the_status_of_another", "x", func(w harness) { w.SetPod(fixture.Pod("a/liar node1@10.32.1.9 10.32.1.7 app=liar")) },
			explain.Side{Pod: "a/x", Reason: "no rule allows it"}},
		{"not_by_the_node", "x", func(w harness) {
			w.SetPod(fixture.Pod("a/x node1@10.32.1.9 10.32.1.9 app=x"))
			w.SetNodeAddrs("node1", nil)
		}, explain.Side{Pod: "a/x", Reason: "no rule allows it"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t)
			w.SetPod(fixture.Pod("a/x node1 10.32.1.9 app=x"))
			c.change(w)
			w.isolate(c.isolates)
			w.expectIngress("a/x", c.want)
		})
	}
}

// TestS73_AStaleAddress shows that a pod whose status is from before a restart waits for its address, which is closed
// until another pod has it.
func TestS73_AStaleAddress(t *testing.T) {
	const conflict = "10.32.1.9 of pod a/x was reported before the pod or its node was restarted: the pod counts as waiting for its address"
	closed := explain.Side{Pod: "a/x", Reason: "waiting for its address", Conflict: conflict}
	boot, x := time.Unix(1000, 0), fixture.Pod("a/x node1 10.32.1.9 app=x")
	for _, c := range []struct {
		name, isolates, to string
		change             func(harness)
		want               explain.Side
	}{
		{"of_another_sandbox", "x", "a/x", func(w harness) { w.SetPod(fixture.Pod("a/x node1 10.32.1.9 app=x StaleAddrs")) }, closed},
		{"of_another_boot", "x", "a/x", func(w harness) {
			x.LastStart = boot.Add(-time.Minute)
			w.SetPod(x)
			w.SetBooted("node1", boot)
		}, closed},
		{"of_this_boot", "x", "a/x", func(w harness) {
			x.LastStart = boot.Add(time.Minute)
			w.SetPod(x)
			w.SetBooted("node1", boot)
		}, explain.Side{Pod: "a/x", Reason: "no rule allows it"}},
		{"the_address_is_asked_about", "x", "10.32.1.9", func(w harness) { w.SetPod(fixture.Pod("a/x node1 10.32.1.9 app=x StaleAddrs")) }, closed},
		{"without_isolation", "none", "a/x", func(w harness) { w.SetPod(fixture.Pod("a/x node1 10.32.1.9 app=x StaleAddrs")) },
			explain.Side{Pod: "a/x", Allowed: true, Reason: "not isolated", Conflict: conflict}},
		{"the_address_alone_without_isolation", "none", "10.32.1.9", func(w harness) { w.SetPod(fixture.Pod("a/x node1 10.32.1.9 app=x StaleAddrs")) },
			explain.Side{Allowed: true, Reason: "no pod"}},
		{"another_pod_has_the_address", "x", "10.32.1.9", func(w harness) {
			w.SetPod(fixture.Pod("a/x node1 10.32.1.9 app=x StaleAddrs"))
			w.SetPod(fixture.Pod("a/next node1 10.32.1.9 app=next"))
		}, explain.Side{Pod: "a/next", Allowed: true, Reason: "not isolated"}},
		{"the_answer_names_the_pod_that_has_it", "x", "a/x", func(w harness) {
			w.SetPod(fixture.Pod("a/x node1 10.32.1.9 app=x StaleAddrs"))
			w.SetPod(fixture.Pod("a/next node1 10.32.1.9 app=next"))
		}, explain.Side{Pod: "a/x", Reason: "waiting for its address", Conflict: conflict + ", and the address belongs to pod a/next"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t)
			c.change(w)
			w.isolate(c.isolates)
			w.expectIngress(c.to, c.want)
		})
	}
}

// TestNotesOfPods shows that the table of pods has the conflicts too.
func TestNotesOfPods(t *testing.T) {
	w := newHarness(t)
	w.SetPod(fixture.Pod("b/old node1 10.32.1.9 app=old"))
	w.later("b/later node1 10.32.1.9 app=later")
	w.SetPod(fixture.Pod("b/stale node1 10.32.1.8 app=x StaleAddrs"))
	got := map[string]string{}
	for _, row := range explain.Pods(w.View(), "b") {
		got[row.Pod] = row.Note
	}
	want := map[string]string{
		"b/old": "10.32.1.9 belongs to pod b/later",
		"b/later": "10.32.1.9 of pod b/later, contradicted by pod b/old: two pods of this node claim one address: " +
			"nothing is allowed in a direction that either is isolated in",
		"b/stale": "10.32.1.8 of pod b/stale was reported before the pod or its node was restarted: the pod counts as waiting for its address",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
