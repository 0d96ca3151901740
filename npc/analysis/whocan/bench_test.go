package whocan_test

import (
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/whocan"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/test/synthetic"
)

// BenchmarkAround asks who reaches a pod, and what it reaches, of 10,000 pods in 500 workloads with 1,000 policies.
func BenchmarkAround(b *testing.B) {
	s := synthetic.Cluster{Pods: 10_000, Namespaces: 25, Policies: 1_000}
	c := cluster.New()
	for i := range s.Namespaces {
		c.SetNamespace(synthetic.Namespace(i))
	}
	for i := range s.Pods {
		c.SetPod(s.Pod(i))
	}
	for i := range s.Policies {
		c.SetPolicy(s.Policy(i))
	}
	for _, d := range npc.Directions {
		b.Run(d.String(), func(b *testing.B) {
			for b.Loop() {
				v := c.Clone().View() // it keeps what it is asked
				all := whocan.Around(v, whocan.Question{Ends: v.OwnedEnds(v.PodNames("")[0]), Direction: d})
				if len(all.Neighbours) < 500 {
					b.Fatalf("%d neighbours", len(all.Neighbours))
				}
			}
		})
	}
}
