package controller_test

import (
	"fmt"
	"strings"
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

// BenchmarkPodInManySets has a policy of another namespace select 100 pods, for so many ports, come and go, and one more
// pod come in between. Neither should take longer for a membership when there are more.
func BenchmarkPodInManySets(b *testing.B) {
	for _, n := range []int{100, 300, 900} {
		m := newModel()
		for _, ns := range []string{"tenant", "other"} {
			m.SetNamespace(fixture.Namespace(ns + " name=" + ns))
		}
		m.SetPod(fixture.Pod("tenant/web 10.32.1.2 " + synthetic.Node))
		for i := range 100 {
			m.SetPod(fixture.Pod(fmt.Sprintf("other/p%d 10.33.1.%d", i, i+2)))
		}
		m.SetSynced()
		carryOut(m)
		var rules []string
		for i := range n {
			rules = append(rules, fmt.Sprintf(`{from: [{namespaceSelector: {matchLabels: {name: other}}, podSelector: {
				matchExpressions: [{key: k%d, operator: DoesNotExist}]}}], ports: [{port: %d}]}`, i, i+1))
		}
		p := fixture.Policy(b, "tenant/p", "{podSelector: {}, ingress: ["+strings.Join(rules, ", ")+"]}")
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				m.SetPolicy(p)
				carryOut(m)
				m.SetPod(fixture.Pod("other/last 10.33.1.200"))
				carryOut(m)
				m.DeletePod("other", "last", "")
				m.DeletePolicy("tenant", "p", "")
				carryOut(m)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n*101), "ns/membership")
		})
	}
}
