package controller_test

import (
	"fmt"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/synthetic"
)

// BenchmarkManyPolicies has a namespace of 30 local pods get policies that select all of them. Of the most, a third
// exceeds the limits. A policy should not take longer when there are more.
func BenchmarkManyPolicies(b *testing.B) {
	for _, n := range []int{300, 1000, 3000} {
		var policies []*networkingv1.NetworkPolicy
		for i := range n {
			policies = append(policies, fixture.Policy(b, fmt.Sprintf("tenant/p%d", i),
				fmt.Sprintf(`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {x%d: y}}}]}]}`, i)))
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				m := newModel()
				m.SetNamespace(fixture.Namespace("tenant"))
				for i := range 30 {
					m.SetPod(fixture.Pod(fmt.Sprintf("tenant/p%d 10.32.1.%d %s", i, i+2, synthetic.Node)))
				}
				m.SetSynced()
				carryOut(m)
				for _, p := range policies {
					m.SetPolicy(p)
				}
				carryOut(m)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "us/policy")
		})
	}
}
