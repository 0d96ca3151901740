package syncer_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/syncer"
	"github.com/weave-npc/weave-npc/test/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// BenchmarkEditsUnderTiers makes 100 changes of pods a second, and edits one of 100 cluster network policies ten times
// a second, for ten seconds: its priority, its rules, or its subject. The metrics are within what time the kernel had
// the oldest change of a sync: of half of them, and of 99 of
// 100. An edit is one of ten; "edits-99%-ms" takes the edits for the slowest syncs of all.
func BenchmarkEditsUnderTiers(b *testing.B) {
	for _, backend := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		b.Run(string(backend), func(b *testing.B) {
			cluster.Empty(b)
			m := controller.New(enforce.Config{NodeName: cluster.Node, PodInterface: "cni0", ForwardJump: true, AllowAction: "ACCEPT", FailClosed: enforce.FailClosedAuto,
				NFLogGroup: 86, AllowMcast: true, MaxListSize: 1024})
			s, err := syncer.New(m, npc.Families[:], backend, syncer.NewMetrics(prometheus.NewRegistry(), m, npc.Families[:]),
				slog.New(slog.DiscardHandler), func(enforce.InvalidPolicy) {})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			random := rand.New(rand.NewPCG(1, 2))
			m.SetNamespace(fixture.Namespace("shop"))
			for i := range 110 {
				m.SetPod(tieredPod(random, cluster.Node, 1, i))
			}
			for i := range 100 {
				m.SetClusterPolicy(randomTierPolicy(b, random, i))
			}
			m.SetSynced()
			var took []float64
			var started atomic.Bool
			s.RecordLatency(func(seconds float64) {
				if started.Load() {
					took = append(took, seconds*1000)
				}
			})
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); _ = s.Run(ctx, false) }()
			<-s.Enforced().Done()
			started.Store(true)
			edits := 0
			for b.Loop() {
				tick := time.NewTicker(10 * time.Millisecond)
				for i := range 1000 {
					<-tick.C
					if i%10 == 0 {
						m.SetClusterPolicy(randomTierPolicy(b, random, random.IntN(100)))
						edits++
					}
					if i%5 == 0 {
						m.SetPod(tieredPod(random, cluster.Node, 1, random.IntN(110)))
					} else {
						m.SetPod(tieredPod(random, "node2", 2+random.IntN(4), random.IntN(250)))
					}
				}
				tick.Stop()
			}
			cancel()
			<-ended
			took = slices.Sorted(slices.Values(took))
			b.ReportMetric(took[len(took)/2], "50%-ms")
			b.ReportMetric(took[len(took)*99/100], "99%-ms")
			b.ReportMetric(took[len(took)-1-edits/100], "edits-99%-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// tieredPod returns a pod with labels that policies choose.
func tieredPod(random *rand.Rand, node string, subnet, n int) npc.Pod {
	return fixture.Pod(fmt.Sprintf("shop/pod-%[1]d-%[2]d %[3]s 10.32.%[1]d.%[4]d app=%[5]d",
		subnet, n, node, n+2, random.IntN(5)))
}

// randomTierPolicy returns a policy with two rules for the pods of one application.
func randomTierPolicy(b *testing.B, random *rand.Rand, n int) *v1alpha2.ClusterNetworkPolicy {
	pods := func(app int) string {
		return fmt.Sprintf(`{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: "%d"}}}}`, app)
	}
	tier, priority, subject := v1alpha2.AdminTier, random.IntN(1000), pods(n%5)
	if n%3 == 0 {
		tier = v1alpha2.BaselineTier
	}
	if random.IntN(5) == 0 {
		subject = pods(random.IntN(5))
	}
	var rules []string
	for _, action := range []string{"Accept", "Deny"} {
		const rule = "{action: %s, from: [%s], protocols: [{tcp: {destinationPort: {number: %d}}}]}"
		rules = append(rules, fmt.Sprintf(rule, action, pods(random.IntN(5)), 1+random.IntN(1000)))
	}
	spec := fmt.Sprintf("{tier: %s, priority: %d, subject: %s, ingress: [%s]}",
		tier, priority, subject, strings.Join(rules, ", "))
	return fixture.ClusterPolicy(b, fmt.Sprintf("p%02d", n), spec)
}
