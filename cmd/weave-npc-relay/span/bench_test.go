package span_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/weave-npc/weave-npc/cmd/weave-npc-relay/span"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/test/synthetic"
)

// BenchmarkSpans measures what a change costs in a cluster of 100,000 pods on 5,000 nodes, all of which are watched, with the policies that the
// agents' benchmarks have.
func BenchmarkSpans(b *testing.B) {
	c := synthetic.Cluster{Pods: 100_000, Namespaces: 2_000, Policies: 5_000}
	pod := func(i int) npc.Pod {
		p := c.Pod(i)
		p.Node = fmt.Sprintf("node-%d", i%5_000)
		return p
	}
	before := heap()
	x := span.New()
	for i := range c.Namespaces {
		x.SetNamespace(synthetic.Namespace(i))
	}
	for i := range c.Policies {
		x.SetPolicy(c.Policy(i))
	}
	for i := range c.Pods {
		x.SetPod(pod(i), i)
	}
	for i := range 5_000 {
		x.Watch(fmt.Sprintf("node-%d", i))
	}
	b.Logf("%.0f MB of heap", heap()-before)
	told := 0
	count := func(changes []span.Change) {
		for _, change := range changes {
			for range x.Nodes(change) {
				told++
			}
		}
	}
	for _, m := range []struct {
		name   string
		change func(i int) []span.Change
	}{
		{"pod_status", func(i int) []span.Change { return x.SetPod(pod(i%c.Pods), i) }},
		{"pod_ends_and_starts", func(i int) []span.Change {
			p := pod(i % c.Pods)
			return append(x.DeletePod(p.Namespace, p.Name, i), x.SetPod(p, i)...)
		}},
		{"policy_removed_and_added", func(i int) []span.Change {
			p := c.Policy(i % c.Policies)
			return append(x.DeletePolicy(p.Namespace, p.Name), x.SetPolicy(p)...)
		}},
		{"namespace_relabelled", func(i int) []span.Change {
			n := synthetic.Namespace(i / 2 % c.Namespaces)
			if i%2 == 0 {
				n.Labels = map[string]string{"team": "team-0", "tier": "dev"}
			}
			return x.SetNamespace(n)
		}},
		{"snapshot", func(i int) []span.Change { told += len(x.Snapshot(fmt.Sprintf("node-%d", i%5_000))); return nil }},
	} {
		b.Run(m.name, func(b *testing.B) {
			told = 0
			i := 0
			for b.Loop() {
				count(m.change(i))
				i++
			}
			b.ReportMetric(float64(told)/float64(b.N), "told/op")
		})
	}
	runtime.KeepAlive(x)
}

// heap returns how much memory is in use, in MB.
func heap() float64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return float64(s.HeapAlloc) / 1e6
}
