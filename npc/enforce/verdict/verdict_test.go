package verdict_test

import (
	"net/netip"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
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

func question(peer string) verdict.Question {
	return verdict.Question{Peer: netip.MustParseAddr(peer), Service: flow.Service{Protocol: npc.TCP, Port: 80}}
}

// TestAVerdictAllocatesNothing however many address blocks it looks at.
func TestAVerdictAllocatesNothing(t *testing.T) {
	side := manyBlocks()
	for peer, want := range map[string]bool{"13.7.0.1": true, "13.7.0.5": false} {
		q := question(peer)
		if d := q.Evaluate(nil, side); d.Allowed != want {
			t.Errorf("%s is allowed: %t", peer, d.Allowed)
		}
		if n := testing.AllocsPerRun(100, func() { q.Evaluate(nil, side) }); n > 0 {
			t.Errorf("%s: a verdict allocates %g times", peer, n)
		}
	}
}

// BenchmarkVerdict beside 400,000 address blocks, none of which has the peer.
func BenchmarkVerdict(b *testing.B) {
	side, q := manyBlocks(), question("13.7.0.5")
	b.ReportAllocs()
	for b.Loop() {
		q.Evaluate(nil, side)
	}
}
