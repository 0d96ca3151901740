package npc_test

import (
	"fmt"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
)

// successor returns a world whose model knows nothing yet, with the kernels of another one. It has not read them again.
func successor(w *world) *world {
	again := newWorld(w.T)
	again.kernels = w.kernels
	return again
}

// TestRestart checks what a start keeps of what the kernel holds, and what it cuts.
func TestRestart(t *testing.T) {
	t.Run("a_second_start_changes_nothing", func(t *testing.T) {
		w := newWorld(t)
		populate(w)
		w.sync()
		w.tidyUp()
		again := successor(w)
		populate(again)
		again.adopt()
		again.sync()
		again.tidyUp()
		if text := again.taken(); text != "" {
			t.Errorf("the second start changes\n%s", text)
		}
		if forgotten := w.kernels[0].Forgotten; len(forgotten) > 0 {
			t.Errorf("flows of %v were cut", forgotten)
		}
	})
	t.Run("S27_an_address_changed_hands_while_nobody_looked", func(t *testing.T) {
		w := newWorld(t)
		populate(w)
		w.sync()
		again := successor(w)
		again.adopt()
		populate(again)
		again.deletePod("a/client")
		again.pod("a/other", "10.32.1.3", "app=client")
		again.sync()
		if got := w.kernels[0].Forgotten; len(got) != 1 || got[0].String() != "10.32.1.3" {
			t.Errorf("forgotten: %v", got)
		}
	})
	t.Run("S27_a_pod_of_the_same_name_has_the_address_since_nobody_looked", func(t *testing.T) {
		w := newWorld(t)
		populate(w)
		w.sync()
		again := successor(w)
		again.adopt()
		populate(again)
		again.setPod("a/client", "10.32.1.3,fd32:1::3", []string{"app=client"}, func(p *npc.Pod) { p.UID = "another" })
		again.sync()
		for f, want := range []string{"[10.32.1.3]", "[fd32:1::3]"} {
			if got := fmt.Sprint(w.kernels[f].Forgotten); got != want {
				t.Errorf("forgotten: %s, not %s", got, want)
			}
		}
	})
	t.Run("S63_a_list_of_one_family_outlives_what_the_other_family_does", func(t *testing.T) {
		allow := func(w *world, peer string) {
			populate(w)
			w.policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [`+peer+`]}]}`)
		}
		w := newWorld(t)
		allow(w, `{namespaceSelector: {matchLabels: {team: a}}}`)
		w.sync()
		// The policy changes between the two. The first family is written before the second one.
		again := successor(w)
		again.adopt()
		allow(again, `{podSelector: {matchLabels: {app: client}}}`)
		for _, k := range again.kernels {
			k.AfterStep = func() { again.expect("a/client > a/web tcp:80 = yes") }
		}
		again.sync()
		again.tidyUp()
		for _, s := range again.kernels[0].Sets {
			if s.Type == ipset.ListSet {
				t.Errorf("%s is left", s.Name)
			}
		}
	})
	t.Run("S59_a_booting_node_is_closed_if_who_was_killed_made_only_the_sets", func(t *testing.T) {
		w := newWorld(t)
		for f, tx := range w.model.PlanStart(true) {
			tx.Rules = iptables.Update{}
			if err := w.kernels[f].Apply(tx); err != nil {
				t.Fatal(err)
			}
		}
		again := successor(w)
		again.adopt()
		again.addr("unknown", "10.32.1.77", "fd32:1::77")
		again.boot()
		again.expect("outside > unknown tcp:80 = no\n unknown > outside tcp:80 = no")
	})
	t.Run("S59_an_isolated_pod_that_vanished_stays_closed_over_a_start", func(t *testing.T) {
		deny := `{podSelector: {matchLabels: {app: web}}}`
		w := newWorld(t)
		w.policy("a/web", deny)
		w.pod("a/before", "10.32.1.5,fd32:1::5", "app=web")
		w.pod("a/meanwhile", "10.32.1.6,fd32:1::6", "app=web")
		w.pod("a/free", "10.32.1.7,fd32:1::7", "app=other")
		w.pod("a/finished", "10.32.1.8,fd32:1::8", "app=web")
		w.sync()
		w.deletePod("a/before")
		w.again(false)
		for range 2 {
			again := successor(w)
			again.addrs = w.addrs
			again.adopt()
			again.policy("a/web", deny)
			again.setPod("a/finished", "10.32.1.8,fd32:1::8", []string{"app=web"}, func(p *npc.Pod) { p.Finished = true })
			again.sync()
			again.tidyUp()
			again.expect(`
				outside > a/before tcp:80 = no
				a/before > outside tcp:80 = yes
				outside > a/meanwhile tcp:80 = no
				outside > a/free tcp:80 = yes
				outside > a/finished tcp:80 = yes`)
			w = again
		}
		w.pod("a/next", "10.32.1.5,fd32:1::5", "app=other")
		w.again(false)
		w.expect("outside > a/next tcp:80 = yes\n outside > a/meanwhile tcp:80 = no")
	})
}
