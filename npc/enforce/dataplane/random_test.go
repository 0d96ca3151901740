package dataplane_test

import (
	"fmt"
	"math/rand"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/steps"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/test/paper"
)

// space is a namespace with a policy: its rules, the set that leads to them, a list of peers and what the list names.
type space struct {
	name              string
	chain             *dataplane.Chain
	shard, peers, all *dataplane.Set
	owner             *dataplane.Owner
}

// history is a random history of a node.
type history struct {
	*node
	*rand.Rand
	spaces []*space
}

// TestAnyHistoryLeavesNothing changes what is desired, has plans carried out, or not, or in part, and has others change
// the kernel. In the end the kernel has what is desired, and what is desired no more is forgotten.
func TestAnyHistoryLeavesNothing(t *testing.T) {
	fresh := bareNode(t, paper.New()[npc.IPv4])
	fresh.carryOut()
	for seed := range int64(150) {
		h := &history{node: bareNode(t, paper.New()[npc.IPv4]), Rand: rand.New(rand.NewSource(seed))}
		for range 40 {
			h.step()
			if wrong := h.Violations(); len(wrong) > 0 {
				t.Fatalf("seed %d: %q", seed, wrong)
			}
		}
		h.carryOut()
		h.carryOut()
		if drift := h.drift(); len(drift) > 0 {
			t.Errorf("drift: %q", drift)
		}
		for len(h.spaces) > 0 {
			h.drop()
		}
		h.collectGarbage()
		h.reconciled()
		if got, want := strings.Join(h.kernel.Lines(), "\n"), strings.Join(fresh.kernel.Lines(), "\n"); got != want {
			t.Errorf("the kernel has\n%s\nand not\n%s", got, want)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func (h *history) drift() []string {
	sets, seen := h.kernel.Read()
	return slices.Concat(h.Sets.Drift(headers(sets)), h.Sets.MemberDrift(sets), h.Chains.Drift(seen))
}

// step is one change, or one plan.
func (h *history) step() {
	switch n := h.Intn(14); {
	case n < 3:
		h.add()
	case n == 3 && len(h.spaces) > 0:
		h.drop()
	case n < 6 && len(h.spaces) > 0:
		h.change(h.spaces[h.Intn(len(h.spaces))])
	case n == 6:
		h.carryOutWith(dataplane.Options{CollectGarbage: true})
	case n == 7:
		h.withoutRules()
	case n == 8: // it is carried out, and not committed
		if err := h.kernel.Apply(h.Plan(dataplane.Options{})); err != nil {
			h.Fatal(err)
		}
		h.load()
	case n == 9:
		h.others()
	case n < 12:
		h.meanwhile()
	default:
		h.carryOut()
	}
}

// add adds a namespace, which may have been there before.
func (h *history) add() {
	name := fmt.Sprintf("n%d", h.Intn(6))
	if slices.ContainsFunc(h.spaces, func(s *space) bool { return s.name == name }) {
		return
	}
	s := &space{name: name, owner: &dataplane.Owner{Namespace: name, Name: "p"}}
	s.chain = h.Chains.AddShard(naming.ShardChain(npc.Ingress, name, ""), name, "what policies of "+name+" allow", base, npc.Ingress)
	s.shard = h.Sets.Add(naming.ShardSet(npc.IPv4, npc.Ingress, name, ""), ipset.HashIP, "isolated pods of "+name)
	s.shard.Dispatch(s.chain, npc.Ingress, 0)
	s.all = h.Sets.Add(naming.Set(npc.IPv4, "all", name), ipset.HashIP, "pods of "+name)
	s.peers = h.Sets.Add(naming.Set(npc.IPv4, "peers", name), ipset.ListSet, "peers of "+name)
	s.peers.Add(ipset.Member(s.all.Key()), ipset.Attr{Comment: name})
	s.chain.Own(s.owner, naming.Match(s.peers.Key(), "src"), 1)
	h.spaces = append(h.spaces, s)
	h.dispatch()
}

// dispatch leads packets to all namespaces.
func (h *history) dispatch() {
	rules := map[string]dataplane.ChainRule{}
	for _, s := range h.spaces {
		rules[naming.Match(s.shard.Key(), "dst")] = dataplane.ChainRule{Target: "-g " + s.chain.Name(), About: s.shard.About()}
	}
	h.root.SetRules(rules)
}

func (h *history) drop() {
	i := h.Intn(len(h.spaces))
	s := h.spaces[i]
	h.spaces = slices.Delete(h.spaces, i, i+1)
	h.dispatch()
	s.chain.Disown(s.owner, naming.Match(s.peers.Key(), "src"))
	s.chain.Drop()
	for _, set := range []*dataplane.Set{s.shard, s.peers, s.all} {
		set.Drop()
	}
}

// change changes members and rules of a namespace.
func (h *history) change(s *space) {
	a := ipset.Addr(netip.AddrFrom4([4]byte{10, 32, 1, byte(10 + h.Intn(4))}))
	match := fmt.Sprintf("-p tcp --dport %d", h.Intn(3))
	switch h.Intn(6) {
	case 0:
		s.chain.Own(s.owner, match, 2)
	case 1:
		s.chain.Disown(s.owner, match)
	case 2:
		s.shard.Remove(a)
	case 3:
		s.shard.Add(a, ipset.Attr{Comment: s.name})
	case 4:
		s.all.Remove(a)
	default:
		s.all.Add(a, ipset.Attr{Comment: fmt.Sprintf("%s, %d", s.name, h.Intn(2))})
	}
}

// meanwhile has something change while a plan is carried out.
func (h *history) meanwhile() {
	tx := h.Plan(dataplane.Options{CollectGarbage: h.Intn(2) == 0})
	h.add()
	if len(h.spaces) > 0 {
		h.drop()
	}
	if err := h.kernel.Apply(tx); err != nil {
		h.Fatal(err)
	}
	h.Commit(tx, tx.Taken())
}

// withoutRules carries out what needs no rules.
func (h *history) withoutRules() {
	tx := h.Plan(dataplane.Options{})
	done := dataplane.Transaction{Steps: steps.Steps{DeleteStale: tx.DeleteStale, AddMembers: tx.AddMembers,
		DeleteAndDestroy: tx.DeletedWithoutRules()}}
	if err := h.kernel.Apply(done); err != nil {
		h.Fatal(err)
	}
	h.Commit(tx, dataplane.Result{Asked: true})
}

// others change something of the kernel's, which is drift.
func (h *history) others() {
	h.carryOut()
	h.carryOut()
	switch h.Intn(3) {
	case 0:
		clear(h.kernel.Sets["weave-local-pods"].Members)
	case 1:
		h.kernel.Chains[naming.MainChain] = h.kernel.Chains[naming.MainChain][1:]
	case 2:
		h.kernel.Chains["FORWARD"] = nil
	}
	if drift := h.drift(); len(drift) != 1 {
		h.Errorf("drift: %q", drift)
	}
	h.load()
}
