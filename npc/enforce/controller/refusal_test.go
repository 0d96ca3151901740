package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// TestManyRefusals cost as much as many sets and rules, and not as much as each set with each rule.
func TestManyRefusals(t *testing.T) {
	now := time.Unix(1000, 0)
	m := atWork(t, &now)
	began := time.Now()
	for i := range 5 {
		var of []string
		for j := range 790 {
			of = append(of, fmt.Sprintf("{from: [{podSelector: {matchLabels: {n: n%d-%d}}}], ports: [{port: %d}]}", i, j, 1+2*j+i))
		}
		spec := "{podSelector: {}, ingress: [" + strings.Join(of, ", ") + "]}"
		m.SetPolicy(fixture.Policy(t, fmt.Sprintf("a/many-%d", i), spec))
		m.carryOut(false)
		m.Planner().Resume()
	}
	carryOut := func() {
		for m.carryOut(false); m.Planner().Resume(); m.carryOut(false) {
		}
	}
	carryOut()
	reasons := map[string]string{}
	for s := range m.state.tables[npc.IPv4].Sets.OfPods() {
		if strings.HasPrefix(s.About(), "pods ") {
			reasons[s.Name] = "no room"
		}
	}
	if len(reasons) < 3900 {
		t.Fatalf("there are only %d sets", len(reasons))
	}
	built := time.Since(began) // of which the refusals take a small part on any machine
	start := time.Now()
	if others, _ := m.Planner().Commit(dataplane.Transaction{}, dataplane.Result{RejectedSets: reasons}); len(others) > 0 {
		t.Errorf("%d sets cannot be left out", len(others))
	}
	carryOut()
	if refused := m.Lookup().Rejected(); len(refused) < 5 {
		t.Errorf("%d policies lack something", len(refused))
	}
	if took := time.Since(start); took > 3*built {
		t.Errorf("%d refused sets took %s, all sets and rules %s", len(reasons), took, built)
	}
	m.Planner().Retry(npc.IPv4)
	carryOut()
	if refused := m.Lookup().Rejected(); len(refused) > 0 {
		t.Errorf("%d policies still lack something", len(refused))
	}
}
