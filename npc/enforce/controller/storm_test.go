package controller_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/networkpolicy"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
)

// storm is a history whose events arrive while transactions are executed; transactions are interrupted, connections are
// deleted late, the rules of namespaces are postponed and policies are over their budget.
type storm struct {
	*generator
	// asked are the addresses whose connections are not deleted yet.
	asked     [2][]netip.Addr
	postponed map[string]bool
}

// interrupted is what an interrupted transaction panics with.
type interrupted struct{}

// TestRandomStorms compares what the kernel holds after random storms with the kernel of a controller that gets only
// the last state.
func TestRandomStorms(t *testing.T) {
	if os.Getenv("WEAVE_NPC_TEST_STORMS") == "" {
		t.Skip("takes minutes: runs only with WEAVE_NPC_TEST_STORMS=1 (make fuzz-interrupts)")
	}
	rapid.Check(t, func(rt *rapid.T) {
		failClosed := rapid.SampledFrom([]enforce.FailClosedMode{enforce.FailClosedAuto, enforce.FailClosedNever}).Draw(rt, "fail-closed")
		byRange := rapid.Bool().Draw(rt, "by range")
		begin := func() *history {
			h := &history{harness: newHarness(t, func(c *enforce.Config) {
				if c.FailClosed = failClosed; byRange {
					identifiedByRange(c)
				}
				c.Budget = quota.Default()
				c.Budget.Rules = quota.Limit{Policy: 6, Namespace: 8, Node: 12}
			}), t: rt, state: newState()}
			h.Model.Shard(networkpolicy.Sharding{MaxLeaves: 0, Targets: 1})
			return h
		}
		s := &storm{generator: &generator{history: begin(), t: rt}, postponed: map[string]bool{}}
		s.maybeEdit()
		s.rage()
		s.reconcile()
		if left := s.Model.Leftovers(); len(left) > 0 {
			rt.Fatalf("left over: %v", left)
		}
		calm := begin()
		s.notifyAll(calm)
		calm.Sync()
		calm.CollectGarbage()
		calm.CollectGarbage()
		for f, k := range calm.Kernels {
			if len(k.Chains) == 0 || !calm.concerns(npc.Family(f)) {
				continue // what a family had once stays until the next start
			}
			if diff := cmp.Diff(withoutHistory(s.Kernels[f].Lines()), withoutHistory(k.Lines())); diff != "" {
				rt.Fatalf("the same objects make something else:\n%s", diff)
			}
		}
	})
}

// rage goes through a storm.
func (s *storm) rage() {
	steps := func(least, most int, label string) {
		for range rapid.IntRange(least, most).Draw(s.t, label) {
			s.step()
		}
	}
	steps(0, 12, "before")
	if s.chance(20, "missing") {
		s.Model.SetMissing(npc.ObjectsMissing)
	}
	s.Model.SetSynced()
	for range rapid.IntRange(1, 12).Draw(s.t, "rounds") {
		steps(0, 4, "steps")
		if s.chance(50, "connections are deleted") {
			s.forgotten()
		}
		s.run(s.chance(20, "tidy"), func() {
			if s.chance(60, "in flight") {
				steps(1, 4, "events")
			}
		}, true)
		if s.chance(20, "postpone") {
			ns := pick(s.generator, someNamespaces, "namespace")
			s.postponed[ns] = !s.postponed[ns]
			s.Model.Postpone(npc.IPv4, ns, s.postponed[ns])
			s.Loaded = true // the syncer looks again by itself
		}
	}
}

// reconcile ends a storm.
func (s *storm) reconcile() {
	s.Model.SetMissing(npc.NothingMissing)
	for _, ns := range someNamespaces {
		s.Model.Postpone(npc.IPv4, ns, false)
	}
	for i := range 8 {
		s.forgotten()
		s.run(i >= 4, func() {}, false)
	}
}

// run is a sync, if anybody asked for one.
func (s *storm) run(tidy bool, meanwhile func(), interrupt bool) {
	reported := s.Loaded || tidy
	s.Loaded = false
	select {
	case <-s.Model.Wake():
		reported = true
	default:
	}
	for more := reported; more; more = s.Model.Resume() {
		txs := s.Model.Plan(tidy, [2]dataplane.Known{})
		meanwhile()
		var broken []npc.Family
		for f, tx := range txs {
			if !tx.Empty() && !s.carryOut(s.Kernels[f].Apply, tx, interrupt) {
				broken = append(broken, npc.Family(f))
				continue
			}
			s.Model.Commit(tx, tx.Taken())
			for _, r := range tx.FlushConntrack {
				s.asked[f] = append(s.asked[f], r.Addr)
			}
		}
		for _, f := range broken {
			sets, seen := s.Kernels[f].Read()
			s.Model.LoadChains(f, seen)
			s.Model.LoadSets(f, sets)
			s.Loaded = true
		}
	}
}

// carryOut reports whether a transaction was carried out as a whole.
func (s *storm) carryOut(apply func(dataplane.Transaction) error, tx dataplane.Transaction, interrupt bool) (done bool) {
	k := s.Kernels[tx.Family]
	defer func() {
		k.AfterStep = nil
		if r := recover(); r != nil && r != any(interrupted{}) {
			panic(r)
		}
	}()
	if interrupt && s.chance(40, "interrupted") {
		left := rapid.IntRange(0, 8).Draw(s.t, "steps before that")
		k.AfterStep = func() {
			if left--; left < 0 {
				panic(interrupted{})
			}
		}
	}
	err := apply(tx)
	if err == nil || strings.HasSuffix(err.Error(), ": in use") || strings.HasSuffix(err.Error(), ": exists") {
		return err == nil // of an empty list, which no family takes for its own
	}
	s.history.t.Fatalf("%v", err)
	return false
}

// forgotten has all connections deleted that were asked for.
func (s *storm) forgotten() {
	for f, addrs := range s.asked {
		s.Loaded = s.Loaded || len(addrs) > 0
		s.Model.Forgotten(npc.Family(f), addrs)
		s.asked[f] = nil
	}
}

// notifyAll gives another controller the present state, in another order.
func (s *storm) notifyAll(other *history) {
	notify := []func(){func() { other.setNodeAddrs(s.node) }}
	for name, labels := range s.spaces {
		notify = append(notify, func() { other.setNamespace(name, labels) })
	}
	for _, p := range s.pods {
		notify = append(notify, func() { other.setPod(p) })
	}
	for _, p := range s.policies {
		notify = append(notify, func() { other.setPolicy(p) })
	}
	rand.New(rand.NewPCG(rapid.Uint64().Draw(s.t, "order"), 0)).Shuffle(len(notify), func(i, j int) { notify[i], notify[j] = notify[j], notify[i] })
	for _, f := range notify {
		f()
	}
}

// withoutHistory leaves out the single addresses that the fail-closed filter drops: those of deleted pods are among
// them.
func withoutHistory(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		var set, element string
		n, _ := fmt.Sscanf(line, "set %s %s", &set, &element)
		_, err := netip.ParseAddr(element)
		return n == 2 && strings.HasPrefix(set, "weave-fail-closed-") && err == nil && !strings.Contains(line, " nomatch ")
	})
}
