package controller_test

import (
	"fmt"
	"testing"
)

// TestS75_APodEventIsInTheThirdTransaction at the latest, the one under way counted, though a policy is edited whenever
// there is time to.
func TestS75_APodEventIsInTheThirdTransaction(t *testing.T) {
	for _, inFlight := range []bool{false, true} {
		t.Run(fmt.Sprintf("in_flight=%t", inFlight), func(t *testing.T) {
			w := newOrderHarness(t)
			edits := 0
			edit := func() {
				edits++
				w.Policy("a/web", fmt.Sprintf(`{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}],
					ports: [{port: 80}, {port: %d}]}]}`, 1000+edits%100))
				w.Policy("b/other", fmt.Sprintf(`{podSelector: {}, ingress: [{ports: [{port: %d}]}]}`, 1000+edits%100))
			}
			// transaction carries one out, while which policies are edited, and reports whether there is another.
			transaction := func(meanwhile func()) bool {
				txs := w.Plan(false)
				edit()
				meanwhile()
				for f, tx := range txs {
					if err := w.Kernels[f].Apply(tx); err != nil {
						t.Fatal(err)
					}
				}
				edit()
				return w.Model.Resume()
			}
			for i := range 20 {
				edit()
				last := fmt.Sprint(10 + i)
				add := func() { w.Pod("a/new"+last, "10.32.1."+last+",fd32:1::"+last, "app=web") }
				enforced := func() bool {
					return w.Holds("10.32.1.5", "10.32.1."+last, false) && w.Holds("10.32.1.4", "10.32.1."+last, true)
				}
				meanwhile, took := func() {}, 0
				if inFlight {
					meanwhile = add
				} else {
					add()
				}
				for ; took == 0 || !enforced(); took++ {
					if transaction(meanwhile); took == 3 {
						t.Fatalf("pod %d is not enforced after %d transactions", i, took)
					}
					meanwhile = func() {}
				}
			}
		})
	}
}

// TestAChangeWaitsUntilItIsCarriedOut although a sync ends after it has left the queue, with all that was planned
// carried out.
func TestAChangeWaitsUntilItIsCarriedOut(t *testing.T) {
	w := newOrderHarness(t)
	w.Again(false)
	w.Model.CarriedOut()
	w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}}`)
	w.Plan(false)
	w.Pod("a/new", "10.32.1.10,fd32:1::10", "app=web") // both while the plan is carried out
	w.Policy("b/other", `{podSelector: {}, ingress: [{ports: [{port: 80}]}]}`)
	for range 2 { // one after the other is taken
		if !w.Model.Resume() {
			t.Fatal("nothing is left")
		}
		w.Model.CarriedOut()
		if w.Model.Waiting() == 0 {
			t.Error("no change waits, though one was not planned yet")
		}
		w.Plan(false)
	}
	if w.Model.Resume() {
		t.Error("something is left")
	}
	w.Model.CarriedOut()
	if w.Model.Waiting() != 0 {
		t.Error("a change waits that was carried out")
	}
}
