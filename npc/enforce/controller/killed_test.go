package controller_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// TestS63_KilledBetweenTheSteps interrupts the transactions of one event after any of their steps, restarts with what
// the kernel holds then, and evaluates every packet after each step of the start, as TestS93_BetweenTheSteps does
// without an interruption.
func TestS63_KilledBetweenTheSteps(t *testing.T) {
	kills, drops := map[string]int{}, map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		h := &generator{history: newHistory(t, rt), t: rt, tiers: moreSteps}
		h.reconcileTiers()
		for range rapid.IntRange(1, 4).Draw(h.t, "rounds") {
			kind := rapid.SampledFrom(slices.Sorted(maps.Keys(h.events()))).Draw(rt, "kind")
			was := h.begin(h.events()[kind])
			if h.killed(rapid.IntRange(0, 30).Draw(rt, "steps")) {
				kills[kind]++
			}
			h.history = h.successor(t)
			h.evaluateTransition(transition{kind: kind, before: was.evaluated(), after: h.state.evaluated()}, was.node,
				func(why string) { drops[kind+" "+why]++ })
			h.check()
		}
	})
	t.Logf("kills: %v; allowed drops of packets, after steps: %v", kills, drops)
}

// killed has the kernel follow what was announced for so many steps, and reports whether there would have been more.
func (h *harness) killed(steps int) (killed bool) {
	defer func() {
		for _, k := range h.Kernels {
			k.AfterStep = nil
		}
		if r := recover(); r != nil && r != any(interrupted{}) {
			panic(r)
		} else if r != nil {
			killed = true
		}
	}()
	for _, k := range h.Kernels {
		k.AfterStep = func() {
			if steps--; steps < 0 {
				panic(interrupted{})
			}
		}
	}
	h.Again(false)
	return false
}

// successor returns a history with the same kernels, whose controller has read them and has got the same state.
func (h *history) successor(t *testing.T) *history {
	next := newHistory(t, h.t)
	next.Kernels, next.past, next.plain = h.Kernels, h.past, h.plain
	next.Load()
	next.become(h.state)
	next.Model.SetSynced()
	return next
}

// TestS63_KilledAfterEachStep interrupts the transactions of a change of cluster policies after each of their steps,
// restarts with what the kernel holds then, and evaluates every packet after each step of the start, as
// TestS93_BetweenTheSteps does without an interruption.
func TestS63_KilledAfterEachStep(t *testing.T) {
	const red = `{pods: {namespaceSelector: {}, podSelector: {matchLabels: {colour: red}}}}`
	const accepting = `{tier: Admin, priority: 9, subject: {namespaces: {}}, ingress: [{action: Accept, from: [{namespaces: {}}]}]}`
	guard := func(tier string) string {
		return `{tier: ` + tier + `, priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [` + red + `]}]}`
	}
	for _, c := range []struct {
		name          string
		before, after map[string]string // cluster policies
		drops         bool              // what both states allow may be dropped
	}{
		{name: "a_policy_of_Baseline_becomes_one_of_Admin", before: map[string]string{"a": guard("Baseline")},
			after: map[string]string{"a": guard("Admin")}, drops: true},
		{name: "a_policy_of_Admin_becomes_one_of_Baseline", before: map[string]string{"a": guard("Admin")},
			after: map[string]string{"a": guard("Baseline")}, drops: true},
		{name: "a_policy_of_Baseline_comes", after: map[string]string{"a": guard("Baseline")}},
		{name: "a_policy_of_Baseline_goes", before: map[string]string{"a": guard("Baseline")}},
		{name: "a_policy_of_Admin_comes", after: map[string]string{"a": guard("Admin")}},
		{name: "a_policy_of_Admin_goes", before: map[string]string{"a": guard("Admin")}},
		{name: "a_policy_of_Admin_comes_above_another", before: map[string]string{"z": accepting},
			after: map[string]string{"z": accepting, "a": guard("Admin")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for steps, killed := 0, true; killed; steps++ {
				h := newHistory(t, t)
				h.plain = true
				h.setNamespace("a", nil)
				for i, colour := range []string{"red", "blue", "green"} {
					const facts = "a/%[1]s node1 10.32.1.%[2]d fd32:1::%[2]d colour=%[1]s"
					h.setPod(fixture.Pod(fmt.Sprintf(facts, colour, i+1)))
				}
				h.setClusterPolicies(t, c.before)
				h.Sync()
				h.check()
				was := h.begin(func() { h.setClusterPolicies(t, c.after) })
				killed = h.killed(steps)
				next := h.successor(t)
				next.evaluateSteps(transition{before: was.evaluated(), after: h.state.evaluated()}, nil, false, func(p refmodel.Packet, by string) {
					if !c.drops {
						t.Errorf("after %d steps: %v is dropped by %q\n%s", steps, p, by, next.Applied())
					}
				})
				next.check()
			}
		})
	}
}

// setClusterPolicies replaces all cluster policies by those with the given specs.
func (h *history) setClusterPolicies(t *testing.T, specs map[string]string) {
	t.Helper()
	for name := range h.cluster {
		if _, stays := specs[name]; !stays {
			h.deleteClusterPolicy(name)
		}
	}
	for name, spec := range specs {
		h.setClusterPolicy(fixture.ClusterPolicy(t, name, spec))
	}
}

// TestS63_KilledWhileAnAddressChangesHands kills weave-npc after each step by which the address of a deleted pod is given
// up, or is given to a next pod that is deleted then. The next weave-npc, and the one after it, close the address in the
// isolated directions of the pod that had it last, and in no others.
func TestS63_KilledWhileAnAddressChangesHands(t *testing.T) {
	for _, c := range []struct{ first, next string }{
		{"free", ""}, {"both", ""}, {"out", ""}, {"admin", ""},
		{"free", "free"}, {"free", "both"}, {"free", "out"}, {"free", "admin"},
		{"both", "free"}, {"both", "out"}, {"admin", "free"}, {"out", "admin"},
	} {
		apartToo := []bool{false, true}
		if c.first == "admin" || c.next == "admin" || c.next == "out" { // these take long, and have no steps of their own then
			apartToo = apartToo[:1]
		}
		for _, apart := range apartToo {
			t.Run(fmt.Sprintf("from_%s_to_%s_apart_%t", c.first, cmp.Or(c.next, "none"), apart), func(t *testing.T) {
				for steps, killed := 0, true; killed; steps++ {
					w := startWithKinds(newHarness(t))
					w.Pod("a/pod", gone, "is="+c.first)
					w.Model.SetSynced()
					w.Again(false)
					w.DeletePod("a/pod")
					if apart { // the next pod comes while another weave-npc runs
						w.killed(1)
						w = startWithKinds(w)
						w.Model.SetSynced()
					}
					if c.next != "" {
						w.Pod("a/next", gone, "is="+c.next)
					}
					killed = w.killed(steps)
					w = startWithKinds(w)
					w.Model.SetSynced()
					w.killed(steps % 4)
					startWithKinds(w).expectClosed(cmp.Or(c.next, c.first))
				}
			})
		}
	}
}

// gone is an address, of one family: the first step of its transaction records whose it is.
const gone = "10.32.1.5"

// startWithKinds returns a successor that knows policies which isolate pods by their labels: is=both, is=in and so on.
func startWithKinds(w *harness) *harness {
	next := successor(w)
	next.Addr("gone", gone)
	next.Load()
	next.Namespace("a")
	for is, types := range map[string]string{"both": "Ingress, Egress", "out": "Egress"} {
		next.Policy("a/"+is, `{podSelector: {matchLabels: {is: `+is+`}}, policyTypes: [`+types+`]}`)
	}
	next.ClusterPolicy("admin", `{tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {is: admin}}}},
		ingress: [{action: Deny, from: [{namespaces: {}}]}]}`)
	return next
}

// expectClosed starts, and expects that the address is closed as the given kind of pod is isolated.
func (h *harness) expectClosed(is string) {
	h.Helper()
	h.Sync()
	to, from := "yes", "yes"
	if is == "both" || is == "admin" {
		to = "no"
	}
	if is == "both" || is == "out" {
		from = "no"
	}
	h.Expect("outside > gone tcp:80 = " + to + "\n gone > outside tcp:80 = " + from)
}
