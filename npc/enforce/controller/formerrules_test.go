package controller_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
)

// TestS74_RulesThatHoldForNoPodAreNotKept: the chain of a namespace whose policies have no rules any more is kept for
// later, with its rules. If a policy that is read while other input is missing needs the chain, pods meet the rules of
// that policy, and none of the old ones.
func TestS74_RulesThatHoldForNoPodAreNotKept(t *testing.T) {
	const fromOps = `from: [{namespaceSelector: {matchLabels: {team: ops}}}]`
	for _, c := range []struct {
		direction npc.Direction
		from, to  string
	}{{npc.Ingress, "ops/copy", "ops/mon"}, {npc.Egress, "ops/mon", "ops/copy"}} {
		t.Run(c.direction.String(), func(t *testing.T) {
			// other is what has the set of the peers stay.
			state := func(w *harness, rule string) {
				w.Namespace("ops", "team=ops")
				w.Pod("ops/mon", "10.32.1.4,fd32:1::4", "app=mon")
				w.Pod("ops/other", "10.32.1.5,fd32:1::5", "app=other")
				w.Remote("ops/copy", "10.32.2.2,fd32:2::2", "app=web")
				w.Policy("ops/policy", policyOf(c.direction, "mon", rule))
				w.Policy("ops/other", policyOf(1-c.direction, "other", fromOps+", ports: [{port: 53}]"))
			}
			w := newHarness(t, identifiedByRange)
			flow := c.from + " > " + c.to + " tcp:%d = %s\n"
			state(w, fromOps)
			w.Sync()
			w.Expect(fmt.Sprintf(flow, 80, "yes"))
			state(w, "")
			w.Again(false)
			w.Expect(fmt.Sprintf(flow, 80, "no"))

			next := w.restarted()
			state(next, "")
			next.Model.SetMissing(npc.ObjectsMissing)
			next.Policy("ops/more", policyOf(c.direction, "mon", "ports: [{port: 53}]"))
			next.Sync()
			next.Expect(fmt.Sprintf(flow+flow, 53, "yes", 80, "no"))
			next.DeletePolicy("ops/more")
			next.Again(false)
			next.CollectGarbage()
			next.Expect(fmt.Sprintf(flow+flow, 53, "no", 80, "no"))
			next.Policy("ops/more", policyOf(c.direction, "mon", "ports: [{port: 53}]"))
			next.Again(false)
			next.Expect(fmt.Sprintf(flow+flow, 53, "yes", 80, "no"))
		})
	}
}

// policyOf returns a policy for pods of an app in a direction, with one rule, written as if for ingress, or none.
func policyOf(d npc.Direction, app, rule string) string {
	if rule != "" {
		rule = "{" + rule + "}"
	}
	if d == npc.Egress {
		return fmt.Sprintf("{podSelector: {matchLabels: {app: %s}}, policyTypes: [Egress], egress: [%s]}", app, strings.ReplaceAll(rule, "from:", "to:"))
	}
	return fmt.Sprintf("{podSelector: {matchLabels: {app: %s}}, ingress: [%s]}", app, rule)
}
