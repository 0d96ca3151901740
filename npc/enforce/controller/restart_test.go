package controller_test

import (
	"fmt"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
)

// successor returns a harness whose controller has no objects yet, with the kernels of another one. It has not read
// them again.
func successor(w *harness) *harness {
	again := newHarness(w.T)
	again.Kernels = w.Kernels
	return again
}

// TestRestart checks what a start keeps of what the kernel holds, and what it terminates.
func TestRestart(t *testing.T) {
	t.Run("a_second_start_changes_nothing", func(t *testing.T) {
		w := newHarness(t)
		populate(w)
		w.Sync()
		w.CollectGarbage()
		again := successor(w)
		populate(again)
		again.Load()
		again.Sync()
		again.CollectGarbage()
		if text := again.Applied(); text != "" {
			t.Errorf("the second start changes\n%s", text)
		}
		if forgotten := w.Kernels[0].Forgotten; len(forgotten) > 0 {
			t.Errorf("flows of %v were terminated", forgotten)
		}
	})
	t.Run("S27_an_address_changed_hands_during_a_restart", func(t *testing.T) {
		w := newHarness(t)
		populate(w)
		w.Sync()
		again := successor(w)
		again.Load()
		populate(again)
		again.DeletePod("a/client")
		again.Pod("a/other", "10.32.1.3", "app=client")
		again.Sync()
		if got := w.Kernels[0].Forgotten; len(got) != 1 || got[0].String() != "10.32.1.3" {
			t.Errorf("forgotten: %v", got)
		}
	})
	t.Run("S27_a_pod_of_the_same_name_has_the_address_after_a_restart", func(t *testing.T) {
		w := newHarness(t)
		populate(w)
		w.Sync()
		again := successor(w)
		again.Load()
		populate(again)
		again.SetPod("a/client", "10.32.1.3,fd32:1::3", []string{"app=client"}, func(p *npc.Pod) { p.UID = "another" })
		again.Sync()
		for f, want := range []string{"[10.32.1.3]", "[fd32:1::3]"} {
			if got := fmt.Sprint(w.Kernels[f].Forgotten); got != want {
				t.Errorf("forgotten: %s, not %s", got, want)
			}
		}
	})
	t.Run("S63_a_list_of_one_family_outlives_what_the_other_family_does", func(t *testing.T) {
		allow := func(w *harness, peer string) {
			populate(w)
			w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [`+peer+`]}]}`)
		}
		w := newHarness(t)
		allow(w, `{namespaceSelector: {matchLabels: {team: a}}}`)
		w.Sync()
		// The policy changes between the two. The first family is written before the second one.
		again := successor(w)
		again.Load()
		allow(again, `{podSelector: {matchLabels: {app: client}}}`)
		for _, k := range again.Kernels {
			k.AfterStep = func() { again.Expect("a/client > a/web tcp:80 = yes") }
		}
		again.Sync()
		again.CollectGarbage()
		for _, s := range again.Kernels[0].Sets {
			if s.Type == ipset.ListSet {
				t.Errorf("%s is left", s.Name)
			}
		}
	})
	t.Run("S59_a_booting_node_is_closed_if_who_was_killed_made_only_the_sets", func(t *testing.T) {
		w := newHarness(t)
		w.PlanStart(true, func(tx dataplane.Transaction) {
			tx.Rules = iptables.Update{}
			if err := w.Kernels[tx.Family].Apply(tx); err != nil {
				t.Fatal(err)
			}
		})
		again := successor(w)
		again.Load()
		again.Addr("unknown", "10.32.1.77", "fd32:1::77")
		again.Boot()
		again.Expect("outside > unknown tcp:80 = no\n unknown > outside tcp:80 = no")
	})
	t.Run("S59_an_isolated_pod_that_was_deleted_stays_closed_over_a_start", func(t *testing.T) {
		deny := `{podSelector: {matchLabels: {app: web}}}`
		w := newHarness(t)
		w.Policy("a/web", deny)
		w.Pod("a/before", "10.32.1.5,fd32:1::5", "app=web")
		w.Pod("a/meanwhile", "10.32.1.6,fd32:1::6", "app=web")
		w.Pod("a/free", "10.32.1.7,fd32:1::7", "app=other")
		w.Pod("a/finished", "10.32.1.8,fd32:1::8", "app=web")
		w.Sync()
		w.DeletePod("a/before")
		w.Again(false)
		for range 2 {
			again := successor(w)
			again.Addrs = w.Addrs
			again.Load()
			again.Policy("a/web", deny)
			again.SetPod("a/finished", "10.32.1.8,fd32:1::8", []string{"app=web"}, func(p *npc.Pod) { p.Finished = true })
			again.Sync()
			again.CollectGarbage()
			again.Expect(`
				outside > a/before tcp:80 = no
				a/before > outside tcp:80 = yes
				outside > a/meanwhile tcp:80 = no
				outside > a/free tcp:80 = yes
				outside > a/finished tcp:80 = yes`)
			w = again
		}
		w.Pod("a/next", "10.32.1.5,fd32:1::5", "app=other")
		w.Again(false)
		w.Expect("outside > a/next tcp:80 = yes\n outside > a/meanwhile tcp:80 = no")
	})
}
