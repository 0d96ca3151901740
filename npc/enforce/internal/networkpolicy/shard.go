package networkpolicy

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// maxDigits is the maximum number of binary digits that distinguish the shards of a namespace.
const maxDigits = 6

// shard is a share of a namespace's isolated pods in one direction, and all rules that are for them: pods that the same
// targets choose are in the same shard, so that a pod that takes another's place touches no rule. A rule that is for
// pods of several shards stands in each.
type shard struct {
	ns *namespace
	// name describes the shard and its namespace for humans. bits are the bits by which the dispatch tree finds it.
	name, bits string
	direction  npc.Direction
	sets       *index.Sets
	maxRules   int
	// policies are those whose rules the chains are to have, and entries what the chains have of them.
	policies map[*enforced]struct{}
	entries  [len(npc.Families)]entries
	// stale is set while the chains are to have others, and reconciled if the kernel had the chain of a family as it was
	// to be before.
	stale      bool
	reconciled [len(npc.Families)]bool
	chains     [len(npc.Families)]*dataplane.Chain
	isolated   [len(npc.Families)]*dataplane.Set
	// path are the nodes of the dispatch tree that dispatch to the chains.
	path []*node
}

// newShard makes a shard of a namespace. Digits distinguish it from the others, if there are others.
func (x *sharding) newShard(ns *namespace, d npc.Direction, digits string) *shard {
	s := &shard{ns: ns, name: ns.name, direction: d, sets: x.sets, maxRules: x.MaxRules}
	if digits != "" {
		s.name += " part " + digits
	}
	s.bits = nodeBits(s.name)
	for f, t := range x.tables {
		c := t.Chains.AddShard(naming.ShardChain(d, ns.name, digits), ns.name,
			fmt.Sprintf("what policies of %s allow, %s", s.name, d), x.base, d)
		s.chains[f] = c
		s.isolated[f] = t.Sets.Add(naming.ShardSet(t.Family, d, ns.name, digits), ipset.HashIP,
			fmt.Sprintf("local pods in %s that policies isolate, %s", s.name, d))
		s.isolated[f].Dispatch(c, d, 0)
	}
	return s
}

// drop drops the shard's chains and sets.
func (s *shard) drop() {
	for f, c := range s.chains {
		c.Drop()
		s.isolated[f].Drop()
	}
}

// digits returns how many binary digits distinguish the shards that the rules are to have, with so many targets in each
// on average.
func (rs *ruleSet) digits(targetsEach int) int {
	if len(rs.users) <= targetsEach {
		return 0
	}
	targets := map[string]struct{}{}
	for p := range rs.users {
		targets[p.targetKey] = struct{}{}
	}
	return min(bits.Len(uint((len(targets)-1)/targetsEach)), maxDigits)
}

// choosing returns the policies whose rules are for a pod, and the digits of the shard that they belong to.
func (rs *ruleSet) choosing(q *index.Pod, digits int) (policies []*enforced, of string) {
	var targets []string
	for p := range rs.users {
		if p.selects(q) {
			policies, targets = append(policies, p), append(targets, p.targetKey)
		}
	}
	slices.Sort(targets)
	return policies, nodeBits(naming.Hash(slices.Compact(targets)...))[:digits]
}

// assignment is what shards there are to be: digits -> policies with rules there, and to which the pods belong.
type assignment struct {
	policies map[string]map[*enforced]struct{}
	pods     map[*podState]string
}

// assign divides a namespace's pods and rules, so that a shard has the policies of so many targets on average.
func (rs *ruleSet) assign(pods map[*index.Pod]*podState, targetsEach int) assignment {
	as := assignment{map[string]map[*enforced]struct{}{}, map[*podState]string{}}
	digits := rs.digits(targetsEach)
	if digits == 0 {
		if len(rs.users) > 0 {
			as.policies[""] = rs.users
			for _, st := range pods {
				as.pods[st] = ""
			}
		}
		return as
	}
	for q, st := range pods {
		policies, of := rs.choosing(q, digits)
		if len(policies) == 0 {
			continue
		}
		as.pods[st] = of
		if as.policies[of] == nil {
			as.policies[of] = map[*enforced]struct{}{}
		}
		for _, p := range policies {
			as.policies[of][p] = struct{}{}
		}
	}
	return as
}

// owners returns the policies whose rules the shard has.
func (s *shard) owners() map[*dataplane.Owner]int {
	out := make(map[*dataplane.Owner]int, len(s.policies))
	for p := range s.policies {
		out[p.owner] = 1
	}
	return out
}
