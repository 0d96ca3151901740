package controller_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
)

// manyDenials returns the spec of a policy that denies the web pod what the db pod sends to the ports from one on.
func manyDenials(from, ports int) string {
	rules := make([]string, ports)
	for i := range rules {
		rules[i] = fmt.Sprintf(`{action: Deny, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}],
			protocols: [{tcp: {destinationPort: {number: %d}}}]}`, from+i)
	}
	return strings.ReplaceAll(fmt.Sprintf(`{tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}},
		ingress: [%s]}`, strings.Join(rules, ", ")), "\t", " ")
}

// denyingALot returns a harness whose pod shop/web has a list of 12 policies with 25 rules each: p00 denies the ports
// from 1000 on, p01 those from 1100 on.
func denyingALot(t *testing.T, start starter) *harness {
	w := start(t, identifiedByRange)
	tieredPods(w)
	for i := range 12 {
		w.ClusterPolicy(fmt.Sprintf("p%02d", i), manyDenials(1000+100*i, 25))
	}
	w.Sync()
	w.Expect("shop/db > shop/web tcp:1000 = no\n shop/db > shop/web tcp:2124 = no\n shop/db > shop/web tcp:2125 = yes")
	return w
}

// TestS93_ALongListIsEditedInPlace: of the rules of a list only those of a policy that changes are written, and they
// come to their places. One that accepts what others deny shows where that is.
func TestS93_ALongListIsEditedInPlace(t *testing.T) {
	onEveryKernel(t, func(t *testing.T, start starter) {
		w := denyingALot(t, start)
		const expect = "shop/db > shop/web tcp:1000 = no\n shop/db > shop/web tcp:1424 = no\n shop/db > shop/web tcp:2100 = no\n shop/api > shop/web tcp:1100 = yes\n"
		for _, c := range []struct {
			name, policy, spec, expect string
			deleted, inserted          int
		}{
			{"changed", "p01", strings.Replace(manyDenials(1100, 25), "number: 1110", "number: 9", 1), "shop/db > shop/web tcp:9 = no\n shop/db > shop/web tcp:1110 = yes", 1, 1},
			{"grown", "p01", manyDenials(1100, 26), "shop/db > shop/web tcp:9 = yes\n shop/db > shop/web tcp:1110 = no\n shop/db > shop/web tcp:1125 = no", 1, 2},
			{"shrunk", "p01", manyDenials(1101, 25), "shop/db > shop/web tcp:1100 = yes\n shop/db > shop/web tcp:1125 = no", 26, 25}, // a rule has its number in its comment
			{"accepting before others", "p05", strings.ReplaceAll(manyDenials(1576, 27), "Deny", "Accept"),
				"shop/db > shop/web tcp:1500 = yes\n shop/db > shop/web tcp:1602 = yes\n shop/db > shop/web tcp:1603 = no", 25, 27},
			{"accepting after others", "p07", strings.ReplaceAll(manyDenials(1600, 5), "Deny", "Accept"),
				"shop/db > shop/web tcp:1700 = yes\n shop/db > shop/web tcp:1602 = yes\n shop/db > shop/web tcp:1604 = no", 25, 5},
		} {
			w.ClusterPolicy(c.policy, c.spec)
			w.Again(true)
			w.Expect(expect + c.expect)
			if w.Live == nil {
				w.edited(c.name, c.deleted, c.inserted)
			}
		}
	})
}

// edited checks that the last transaction edits one chain.
func (w *harness) edited(name string, deleted, inserted int) {
	w.Helper()
	last := w.Applied()
	last = last[strings.LastIndex(last, "*filter"):]
	if strings.Count(last, "\n:") != 1 || strings.Count(last, "\n-D ") != 1+deleted || strings.Count(last, "\n-I ") != inserted {
		w.Errorf("%s: not %d rules are deleted and %d inserted:\n%s", name, deleted, inserted, last)
	}
}

// TestS65_AnEditAfterOthersFails and what is planned after the chains were read again is the whole list, because
// nothing is known of how it came to be as it is.
func TestS65_AnEditAfterOthersFails(t *testing.T) {
	w := denyingALot(t, newHarness)
	k := w.Kernels[npc.IPv4]
	for name, rules := range k.Chains {
		if len(rules) > 250 {
			k.Chains[name] = append([]string{"-p udp -j ACCEPT"}, rules...)
		}
	}
	w.ClusterPolicy("p01", manyDenials(1101, 25))
	tx := w.Model.Plan(false, [2]dataplane.Known{})[npc.IPv4]
	if len(tx.Rules.Edits) != 1 {
		t.Fatalf("not edited:\n%s", tx)
	}
	if err := k.Apply(tx); err == nil {
		t.Fatal("the edit does not fail")
	}
	sets, seen := k.Read()
	w.Model.LoadSets(npc.IPv4, sets)
	w.Model.LoadChains(npc.IPv4, seen)
	tx = w.Model.Plan(false, [2]dataplane.Known{})[npc.IPv4]
	if len(tx.Rules.Edits) != 0 || len(tx.Rules.Replace) != 1 {
		t.Fatalf("not rewritten:\n%s", tx)
	}
	w.Again(false)
	w.Expect("shop/db > shop/web tcp:1100 = yes\n shop/db > shop/web tcp:1124 = no")
	w.ClusterPolicy("p01", manyDenials(1102, 25))
	w.Again(false)
	w.edited("after that", 25, 25)
}
