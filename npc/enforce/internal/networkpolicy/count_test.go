package networkpolicy

import (
	"fmt"
	"testing"
	"time"
)

// TestEntriesAreCountedAgain when policies change later: those of pods that went make room.
func TestEntriesAreCountedAgain(t *testing.T) {
	const everyone = `{podSelector: {matchLabels: {app: %s}}, ingress: [{from: [{podSelector: {matchExpressions: [{key: %s, operator: DoesNotExist}]}}]}]}`
	w := newHarness(t, func(c *Config) { c.Budget.Entries.Namespace = 15 },
		web, db)
	for i := range 8 {
		w.do(fmt.Sprintf("shop/other%d {addrs: [10.33.1.%d]}", i, i+2))
	}
	w.do("policy shop/p "+fmt.Sprintf(everyone, "web", "x"), "policy shop/q "+fmt.Sprintf(everyone, "db", "y"))
	denied := func(want int) {
		t.Helper()
		if n := w.Counts().Denied; n != want {
			t.Errorf("%d policies are denied, not %d", n, want)
		}
	}
	denied(1) // each set has ten entries
	for i := range 5 {
		w.do(fmt.Sprintf("delete shop/other%d", i))
	}
	w.do("policy shop/other {podSelector: {matchLabels: {app: web}}}")
	denied(1)
	w.activation.count.at = time.Now().Add(-recountAfter)
	w.do("policy shop/other {podSelector: {}}")
	denied(0)
}
