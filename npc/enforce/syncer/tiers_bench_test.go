package syncer_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/syncer"
	"github.com/weave-npc/weave-npc/test/cluster"
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
			m.SetNamespace(npc.Namespace{Name: "shop", UID: "shop"})
			for i := range 110 {
				m.SetPod(tieredPod(random, cluster.Node, 1, i))
			}
			for i := range 100 {
				m.SetClusterPolicy(randomTierPolicy(random, i))
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
						m.SetClusterPolicy(randomTierPolicy(random, random.IntN(100)))
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
	name := fmt.Sprintf("pod-%d-%d", subnet, n)
	return npc.Pod{Namespace: "shop", Name: name, UID: types.UID(name), Node: node,
		Addrs:  []netip.Addr{netip.AddrFrom4([4]byte{10, 32, byte(subnet), byte(n + 2)})},
		Labels: map[string]string{"app": fmt.Sprint(random.IntN(5))}}
}

// randomTierPolicy returns a policy with two rules for the pods of one application.
func randomTierPolicy(random *rand.Rand, n int) *v1alpha2.ClusterNetworkPolicy {
	app := func() *v1alpha2.NamespacedPod {
		return &v1alpha2.NamespacedPod{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(random.IntN(5))}}}
	}
	p := &v1alpha2.ClusterNetworkPolicy{}
	p.Name = fmt.Sprintf("p%02d", n)
	p.UID, p.Spec.Tier, p.Spec.Priority = types.UID(p.Name), v1alpha2.AdminTier, int32(random.IntN(1000))
	p.Spec.Subject.Pods = &v1alpha2.NamespacedPod{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(n % 5)}}}
	if n%3 == 0 {
		p.Spec.Tier = v1alpha2.BaselineTier
	}
	if random.IntN(5) == 0 {
		p.Spec.Subject.Pods = app()
	}
	for _, action := range []v1alpha2.ClusterNetworkPolicyRuleAction{"Accept", "Deny"} {
		p.Spec.Ingress = append(p.Spec.Ingress, v1alpha2.ClusterNetworkPolicyIngressRule{Action: action,
			From: []v1alpha2.ClusterNetworkPolicyIngressPeer{{Pods: app()}},
			Protocols: []v1alpha2.ClusterNetworkPolicyProtocol{{TCP: &v1alpha2.ClusterNetworkPolicyProtocolTCP{
				DestinationPort: &v1alpha2.Port{Number: int32(1 + random.IntN(1000))}}}}})
	}
	return p
}
