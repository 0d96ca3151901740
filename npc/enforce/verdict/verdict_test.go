package verdict_test

import (
	"fmt"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
)

// manyBlocks returns what policies of four rules of 100,000 address blocks each say of a pod.
func manyBlocks() *verdict.Side {
	side := &verdict.Side{Isolated: policy.Always}
	for rule := range 4 {
		blocks := make([]ipblock.Block, 0, 100_000)
		for i := range 100_000 {
			addr := netip.AddrFrom4([4]byte{10 + byte(rule), byte(i >> 13), byte(i >> 5), byte(i << 3)})
			blocks = append(blocks, ipblock.Block{CIDR: netip.PrefixFrom(addr, 30)})
		}
		side.Allowing = append(side.Allowing, &verdict.NamedRule{MergedRule: policy.MergedRule{AnyPort: true,
			Peers: []policy.MergedPeer{{Block: ipblock.Of(blocks)}}}})
	}
	return side
}

// manyPorts returns what 9,900 rules of so many ranges of ports each say of a pod, and one rule of a port's name.
func manyPorts(ranges int) *verdict.Side {
	side := &verdict.Side{Isolated: policy.Always}
	for i := range 9901 {
		o := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}}}
		for n := range ranges {
			port := networkingv1.NetworkPolicyPort{Port: new(intstr.FromInt(1000 + i%8000 + n*9000)), EndPort: new(int32(1001 + i%8000 + n*9000))}
			if i == 9900 {
				port = networkingv1.NetworkPolicyPort{Port: new(intstr.FromString("web"))}
			}
			o.Spec.Ingress[0].Ports = append(o.Spec.Ingress[0].Ports, port)
		}
		side.Allowing = append(side.Allowing, &verdict.NamedRule{MergedRule: policy.Compile(o, quota.Default()).Merged[npc.Ingress][0]})
	}
	return side
}

// named returns a question about a flow to a pod.
func named(p npc.Pod) verdict.Question {
	q := question("192.0.2.1")
	q.Destination = &index.Pod{Pod: p}
	return q
}

func question(peer string) verdict.Question {
	return verdict.Question{Peer: netip.MustParseAddr(peer), Service: flow.Service{Protocol: npc.TCP, Port: 80}}
}

// TestAVerdictAllocatesNothing however many address blocks it looks at.
func TestAVerdictAllocatesNothing(t *testing.T) {
	side := manyBlocks()
	for peer, want := range map[string]bool{"13.7.0.1": true, "13.7.0.5": false} {
		q := question(peer)
		if d, _ := q.Evaluate(nil, side, verdict.NoBound); d.Allowed != want {
			t.Errorf("%s is allowed: %t", peer, d.Allowed)
		}
		if n := testing.AllocsPerRun(100, func() { q.Evaluate(nil, side, verdict.NoBound) }); n > 0 {
			t.Errorf("%s: a verdict allocates %g times", peer, n)
		}
	}
}

// TestABoundOfComparisons decides about what takes no more of them, and ends soon if something takes more.
func TestABoundOfComparisons(t *testing.T) {
	web, other := named(npc.Pod{Namespace: "a", Ports: []npc.NamedPort{{Name: "web", Protocol: npc.TCP, Port: 80}}}), question("192.0.2.1")
	for about, side := range map[string]*verdict.Side{"ports": manyPorts(1), "ranges": manyPorts(7), "blocks": manyBlocks()} {
		for _, q := range []verdict.Question{question("13.7.0.1"), other, web} {
			want, left := q.Evaluate(nil, side, verdict.NoBound)
			takes := verdict.NoBound - left
			for _, most := range []int{0, 1, takes / 2, takes - 1, takes, takes + 1} {
				d, left := q.Evaluate(nil, side, most)
				if known := left >= 0; known != (most >= takes) || known && d != want || left < -100 {
					t.Errorf("%s: with %d of %d comparisons: %+v, %d are left", about, most, takes, d, left)
				}
			}
		}
	}
}

// BenchmarkBound of the comparisons with rules of which none fits.
func BenchmarkBound(b *testing.B) {
	for _, ranges := range []int{1, 7} {
		side, q := manyPorts(ranges), question("192.0.2.1")
		for _, most := range []int{300, verdict.NoBound} {
			b.Run(fmt.Sprintf("%d_ranges/%d", ranges, most), func(b *testing.B) {
				for b.Loop() {
					q.Evaluate(nil, side, most)
				}
			})
		}
	}
}

// BenchmarkVerdict beside 400,000 address blocks, none of which has the peer.
func BenchmarkVerdict(b *testing.B) {
	side, q := manyBlocks(), question("13.7.0.5")
	b.ReportAllocs()
	for b.Loop() {
		q.Evaluate(nil, side, verdict.NoBound)
	}
}
