package enforce

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS75_APodIsEnforcedWhileOthersEditPolicies all the time, of many address blocks.
func TestS75_APodIsEnforcedWhileOthersEditPolicies(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, do(base(), policy("shop/p", "podSelector: {matchLabels: {role: closed}}")))
		o := w.objects(do(base(), policy("shop/p", "podSelector: {matchLabels: {role: closed}}")))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ctx.Err() == nil; i++ {
				writeFile(t, filepath.Join(w.source.(*manifests).dir, "busy.yaml"), busyPolicy(1000, i))
				time.Sleep(100 * time.Millisecond)
			}
		}()
		defer func() { cancel(); <-done }()
		for i := range 4 {
			label, want := "role=closed", wants{"tcp 80": "-*>web", "udp 53": "-*>web"}
			if i%2 == 1 {
				label, want = "role=open", wants{"tcp 80": "", "udp 53": ""}
			}
			pod("shop/web", labelled(label))(w, o)
			w.source.write(t, o)
			w.expect(t, want)
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
		fmt.Fprintf(&b, "    - ipBlock: {cidr: 100.%d.%d.0/24, except: [100.%d.%d.%d/32]}\n", i>>8, i&255, i>>8, i&255, edit%250)
	}
	return b.String()
}

// TestS76_WhatIsOverBudgetAllowsNothingAndHarmsNoPod until it is within the budget again, or there is room for it.
func TestS76_WhatIsOverBudgetAllowsNothingAndHarmsNoPod(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		rules := func(n int) string {
			text := "podSelector: {matchLabels: {app: web}}\ningress:\n"
			for i := range n {
				text += fmt.Sprintf("- {from: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: %d}]}\n", 80+i)
			}
			return text
		}
		state := do(base(), policy("shop/a", rules(3)), policy("ops/a", "podSelector: {matchLabels: {app: mon}}\ningress: [{ports: [{port: 80}]}]"))
		w := start(t, backend, state, "--max-rules", "policy=4,namespace=5,node=20")
		o := w.objects(state)
		for _, d := range w.daemons {
			d.log.expect(`policy is invalid.*--max-rules`)
		}
		for _, s := range []step{
			{about: "within", do: do(), want: wants{"tcp 80": "-*>web +db>web", "tcp 82": "-*>web -*>mon +db>web", "tcp 83": "-*>web -*>mon"}},
			{about: "more than a policy may", do: policy("shop/a", rules(5)), want: wants{"tcp 80": "-*>web", "tcp 82": "-*>web -*>mon"}},
			{about: "within again", do: policy("shop/a", rules(4)), want: wants{"tcp 80": "-*>web +db>web", "tcp 83": "-*>web -*>mon +db>web"}},
			{about: "more than is left of the namespace's", do: policy("shop/b", `
podSelector: {matchLabels: {app: db}}
ingress: [{ports: [{port: 80}]}, {ports: [{port: 81}]}]`), want: wants{"tcp 80": "-*>web -*>db +db>web", "tcp 81": "-*>web -*>db -*>mon +db>web"}},
			{about: "there is room", do: policy("shop/a", rules(3)), want: wants{"tcp 80": "-*>web +db>web", "tcp 82": "-*>web -*>db -*>mon +db>web"}},
		} {
			s.do(w, o)
			w.apply(t, o)
			w.expect(t, s.want)
		}
	})
}
