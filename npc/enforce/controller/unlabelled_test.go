package controller_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// setUnlabelled sets a local pod whose labels are too large to be kept.
func (w *harness) setUnlabelled(name, addrs string) {
	w.SetPod(name, addrs, nil, func(p *npc.Pod) { p.Unlabelled = true })
}

// TestS76_LabelsThatAreTooLargeCostTheirPodAlone: nothing that depends on labels allows it anything, and whatever may
// select it isolates it.
func TestS76_LabelsThatAreTooLargeCostTheirPodAlone(t *testing.T) {
	const addrs = "10.32.1.2,fd32:1::2"
	w := newHarness(t, identifiedByRange)
	for _, namespace := range []string{"a", "b"} {
		w.Namespace(namespace)
	}
	w.setUnlabelled("a/fat", addrs)
	w.Pod("a/thin", "10.32.1.3,fd32:1::3", "app=thin")
	w.Pod("b/web", "10.32.1.4,fd32:1::4", "app=web")
	w.Policy("b/web", `{podSelector: {matchLabels: {app: web}}, ingress: [
		{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: fat}}}], ports: [{port: 1}]},
		{from: [{namespaceSelector: {}, podSelector: {matchExpressions: [{key: bad, operator: DoesNotExist}]}}], ports: [{port: 2}]},
		{from: [{namespaceSelector: {}}], ports: [{port: 3}]}]}`)
	w.Sync()
	const asPeer = `
		a/fat > b/web tcp:1 = no
		a/fat > b/web tcp:2 = no
		a/thin > b/web tcp:2 = yes`
	w.Expect(asPeer + `
		a/fat > b/web tcp:3 = yes
		outside > a/fat tcp:1 = yes`)
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"of any labels", func() {
			w.Policy("a/other", `{podSelector: {matchLabels: {app: none}}, ingress: [{}]}`)
		}, `outside > a/fat tcp:1 = no
			a/fat > b/web tcp:3 = yes
			outside > a/thin tcp:1 = yes`},
		{"that must not be there", func() {
			w.Policy("a/other", `{podSelector: {matchExpressions: [{key: bad, operator: DoesNotExist}]}, ingress: [{}]}`)
		}, `outside > a/fat tcp:1 = no
			outside > a/thin tcp:1 = yes`},
		{"whatever they are", func() {
			w.Policy("a/all", `{podSelector: {}, ingress: [{ports: [{port: 1}]}]}`)
		}, `outside > a/fat tcp:1 = yes
			outside > a/fat tcp:2 = no
			outside > a/thin tcp:2 = yes`},
		{"egress", func() {
			w.Policy("a/other", `{podSelector: {matchLabels: {app: none}}, policyTypes: [Egress]}`)
		}, `a/fat > b/web tcp:3 = no
			a/thin > b/web tcp:3 = yes
			outside > a/fat tcp:1 = yes`},
		{"cluster policies of other pods", func() {
			w.ClusterPolicy("web", `{tier: Admin, priority: 1, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: none}}}},
				ingress: [{action: Accept, from: [{namespaces: {}}]}]}`)
		}, `outside > a/fat tcp:1 = no
			a/fat > b/web tcp:3 = no
			outside > a/thin tcp:1 = yes`},
		{"cluster policies that accept all", func() {
			w.ClusterPolicy("web", `{tier: Admin, priority: 1, subject: {namespaces: {}},
				ingress: [{action: Accept, from: [{namespaces: {}}]}], egress: [{action: Accept, to: [{namespaces: {}}]}]}`)
		}, `b/web > a/fat tcp:1 = no
			a/fat > b/web tcp:3 = no
			a/thin > b/web tcp:1 = yes`},
		{"cluster policies gone", func() {
			w.Model.DeleteClusterPolicy("web", "")
			w.DeletePolicy("a/other")
		}, `outside > a/fat tcp:1 = yes
			outside > a/fat tcp:2 = no
			a/fat > b/web tcp:3 = yes`},
		{"policies gone", func() { w.DeletePolicy("a/all") }, `outside > a/fat tcp:2 = yes`},
		{"fewer labels", func() {
			w.Policy("a/other", `{podSelector: {matchLabels: {app: none}}}`)
			w.Pod("a/fat", addrs, "app=fat")
		}, `outside > a/fat tcp:1 = yes
			a/fat > b/web tcp:1 = yes
			a/fat > b/web tcp:2 = yes`},
		{"no labels", func() { w.Pod("a/fat", addrs) }, `outside > a/fat tcp:1 = yes`},
		{"more labels", func() { w.setUnlabelled("a/fat", addrs) }, asPeer + `
			outside > a/fat tcp:1 = no`},
	} {
		step.do()
		w.Again(false)
		t.Log(step.name)
		w.Expect(step.want)
		w.expectEvaluated(step.want)
	}
}

// expectEvaluated compares lines as Expect takes them with the verdicts of the node on the same flows.
func (w *harness) expectEvaluated(lines string) {
	w.Helper()
	addrs := map[string]string{"a/fat": "10.32.1.2", "a/thin": "10.32.1.3", "b/web": "10.32.1.4", "outside": "198.51.100.7"}
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		var from, to, want string
		var port uint16
		if _, err := fmt.Sscanf(strings.TrimSpace(line), "%s > %s tcp:%d = %s", &from, &to, &port, &want); err != nil {
			w.Fatal(err)
		}
		f := verdict.Flow{From: netip.MustParseAddr(addrs[from]), To: netip.MustParseAddr(addrs[to]), Service: flow.Service{Protocol: 6, Port: port}}
		if v, _ := w.Model.Evaluate(verdict.NoBound, f); v.Allowed != (want == "yes") {
			w.Errorf("%s: evaluated as %+v", line, v)
		}
	}
}
