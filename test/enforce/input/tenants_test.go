package input

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS75_APodIsEnforcedWhileOthersEditPolicies all the time, of many address blocks.
func TestS75_APodIsEnforcedWhileOthersEditPolicies(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Do(e2e.Base(),
			e2e.Policy("shop/p", "podSelector: {matchLabels: {role: closed}}")))
		o := w.Objects(e2e.Do(e2e.Base(), e2e.Policy("shop/p", "podSelector: {matchLabels: {role: closed}}")))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ctx.Err() == nil; i++ {
				e2e.WriteFile(t, filepath.Join(w.Source.(*e2e.Manifests).Dir, "busy.yaml"), busyPolicy(1000, i))
				time.Sleep(100 * time.Millisecond)
			}
		}()
		defer func() { cancel(); <-done }()
		for i := range 4 {
			label, want := "role=closed", e2e.Wants{"tcp 80": "-*>web", "udp 53": "-*>web"}
			if i%2 == 1 {
				label, want = "role=open", e2e.Wants{"tcp 80": "", "udp 53": ""}
			}
			e2e.Pod("shop/web", e2e.Labelled(label))(w, o)
			w.Source.Write(t, o)
			w.Expect(t, want)
		}
	})
}

// busyPolicy selects ops/mon and lets in everybody, by many blocks that differ with each edit.
func busyPolicy(blocks, edit int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: busy, namespace: ops}
spec:
  podSelector: {matchLabels: {app: mon}}
  ingress:
  - {}
  - from:
    - ipBlock: {cidr: 198.18.%d.0/24}
`, edit%250)
	for i := range blocks {
		fmt.Fprintf(&b, "    - ipBlock: {cidr: 100.%d.%d.0/24, except: [100.%d.%d.%d/32]}\n", i>>8, i&255, i>>8, i&255,
			edit%250)
	}
	return b.String()
}

// TestS75_APolicyDoesNotWaitForAllOfAnotherNamespace, whose policies have more peers than one transaction should create
// sets for.
func TestS75_APolicyDoesNotWaitForAllOfAnotherNamespace(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Base())
		w.Timeout = 4 * e2e.Timeout // 3,000 sets on each of two nodes
		said := w.Daemons[0].Log.Len()
		var policies []e2e.Change
		for i := range 3 {
			policies = append(policies, e2e.Policy(fmt.Sprintf("ops/many%d", i), manyPeers(i, 1000)))
		}
		state := e2e.Do(e2e.Base(), e2e.Do(policies...), e2e.Policy("shop/p", "podSelector: {matchLabels: {app: db}}"))
		w.Apply(t, w.Objects(state))
		w.Expect(t, e2e.Wants{"tcp 80": "-*>mon -*>db"})
		var created []int // sets, by each transaction that creates any
		for _, m := range regexp.MustCompile(`family=IPv4 sets_created=(\d+)`).FindAllStringSubmatch(w.Daemons[0].Log.Since(said), -1) {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			created = append(created, n)
		}
		if small := slices.IndexFunc(created, func(n int) bool { return n < 100 }); small < 0 || small > 1 || len(created) != 4 {
			t.Errorf("the transactions create %d sets: the policy of one set is not before those that wait", created)
		}
	})
}

func manyPeers(policy, peers int) string {
	text := "podSelector: {matchLabels: {app: mon}}\ningress:\n- from:\n"
	for i := range peers {
		text += fmt.Sprintf("  - podSelector: {matchLabels: {many: m%d-%d}}\n", policy, i)
	}
	return text
}

// TestS76_WhatIsOverBudgetAllowsNothingAndHarmsNoPod until it is within the budget again, or there is room for it.
func TestS76_WhatIsOverBudgetAllowsNothingAndHarmsNoPod(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		rules := func(n int) string {
			text := "podSelector: {matchLabels: {app: web}}\ningress:\n"
			for i := range n {
				text += fmt.Sprintf("- {from: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: %d}]}\n", 80+i)
			}
			return text
		}
		state := e2e.Do(e2e.Base(), e2e.Policy("shop/a", rules(3)),
			e2e.Policy("ops/a", "podSelector: {matchLabels: {app: mon}}\ningress: [{ports: [{port: 80}]}]"))
		w := e2e.Start(t, backend, state, "--max-rules", "policy=4,namespace=5,node=20")
		o := w.Objects(state)
		for _, d := range w.Daemons {
			d.Log.Expect(`policy is invalid.*--max-rules`)
		}
		for _, s := range []e2e.Step{
			{About: "within", Do: e2e.Do(), Want: e2e.Wants{"tcp 80": "-*>web +db>web",
				"tcp 82": "-*>web -*>mon +db>web", "tcp 83": "-*>web -*>mon"}},
			{About: "more than a policy may", Do: e2e.Policy("shop/a", rules(5)), Want: e2e.Wants{"tcp 80": "-*>web",
				"tcp 82": "-*>web -*>mon"}},
			{About: "within again", Do: e2e.Policy("shop/a", rules(4)), Want: e2e.Wants{"tcp 80": "-*>web +db>web",
				"tcp 83": "-*>web -*>mon +db>web"}},
			{About: "more than is left of the namespace's", Do: e2e.Policy("shop/b", `
podSelector: {matchLabels: {app: db}}
ingress: [{ports: [{port: 80}]}, {ports: [{port: 81}]}]`), Want: e2e.Wants{"tcp 80": "-*>web -*>db +db>web", "tcp 81": "-*>web -*>db -*>mon +db>web"}},
			{About: "there is room", Do: e2e.Policy("shop/a", rules(3)), Want: e2e.Wants{"tcp 80": "-*>web +db>web",
				"tcp 82": "-*>web -*>db -*>mon +db>web"}},
		} {
			s.Do(w, o)
			w.Apply(t, o)
			w.Expect(t, s.Want)
		}
	})
}
