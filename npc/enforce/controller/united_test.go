package controller_test

import (
	"fmt"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
)

// united has policies of namespace a let clients reach a/web, one each, which become one rule.
func united(w *harness, policies int) {
	w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
	for i := range policies + 1 {
		w.Pod(fmt.Sprint("a/client-", i), fmt.Sprintf("10.32.1.%d,fd32:1::%d", 10+i, 10+i), fmt.Sprint("client=", i))
	}
	for i := range policies {
		unite(w, i)
	}
}

func unite(w *harness, i int) {
	w.Policy(fmt.Sprint("a/from-", i), fmt.Sprintf(
		`{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {client: "%d"}}}]}]}`, i))
}

// TestUnitedRulesAreWrittenLate shows that the peers of rules that are one are kept up to date while the kernel has the
// rule, though other policies have taken its place and their rule is not written yet.
func TestUnitedRulesAreWrittenLate(t *testing.T) {
	w := newHarness(t)
	united(w, 6)
	w.Sync()
	w.Expect("a/client-1 > a/web tcp:80 = yes\n a/client-2 > a/web tcp:80 = yes\n a/client-6 > a/web tcp:80 = no")
	for _, f := range npc.Families {
		w.Model.Postpone(f, "a", true)
	}
	unite(w, 6)
	w.Again(false)
	w.Pod("a/client-1", "10.32.1.11,fd32:1::11", "client=none")
	w.Again(false)
	w.Expect("a/client-1 > a/web tcp:80 = no\n a/client-2 > a/web tcp:80 = yes")
	unite(w, 7)
	w.Pod("a/client-1", "10.32.1.11,fd32:1::11", "client=2")
	w.Pod("a/client-2", "10.32.1.12,fd32:1::12", "client=none")
	w.Again(true)
	w.Expect("a/client-1 > a/web tcp:80 = yes\n a/client-2 > a/web tcp:80 = no")
	for _, f := range npc.Families {
		w.Model.Postpone(f, "a", false)
	}
	w.Loaded = true // none has to announce it: the one who postponed it plans again
	w.Again(false)
	w.Expect("a/client-1 > a/web tcp:80 = yes\n a/client-2 > a/web tcp:80 = no\n a/client-6 > a/web tcp:80 = yes")
	w.CollectGarbage()
	fresh := newHarness(t)
	united(fresh, 8)
	fresh.Sync()
	sets, rules := w.size()
	if wantSets, wantRules := fresh.size(); sets != wantSets || rules != wantRules {
		t.Errorf("%d sets and %d rules are left, a fresh start has %d and %d", sets, rules, wantSets, wantRules)
	}
}
