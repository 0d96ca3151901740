package networkpolicy

import (
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
)

// Sharding is how the rules of isolated pods are divided.
type Sharding struct {
	// Targets is how many targets the policies may have whose rules stand one after the other, on average. With more
	// the rules and their pods are divided.
	Targets int
	// MaxLeaves is how many shards a chain may jump to one by one. With more, half of them go to a chain of their own;
	// with 0 each branch has its own chain.
	MaxLeaves int
}

// DefaultSharding returns what was measured to be best.
func DefaultSharding() Sharding { return Sharding{Targets: 8, MaxLeaves: 2} }

// sharding keeps the shards of all namespaces, and the trees that dispatch to them.
type sharding struct {
	tables  [len(npc.Families)]*dataplane.Table
	base    *rules.Base
	trees   [len(npc.Directions)]*dispatchTree
	targets int
	// moved are pods that belong to other sets.
	moved []*podState
	// unusedShards and unusedNodes are to be dropped once no pod is in their sets.
	unusedShards []*shard
	unusedNodes  []*node
}

func newSharding(c Sharding, tables [len(npc.Families)]*dataplane.Table, base *rules.Base,
	roots [len(npc.Directions)][len(npc.Families)]*dataplane.Chain) sharding {
	s := sharding{tables: tables, base: base, targets: c.Targets}
	for _, d := range npc.Directions {
		s.trees[d] = &dispatchTree{direction: d, tables: tables, maxLeaves: c.MaxLeaves, root: roots[d],
			nodes: map[string]*node{}}
	}
	return s
}

// move records that a pod belongs to other sets.
func (s *sharding) move(st *podState) {
	if !st.moved {
		st.moved = true
		s.moved = append(s.moved, st)
	}
}

// take returns the pods that were moved since the last call.
func (s *sharding) take() []*index.Pod {
	if len(s.moved) == 0 {
		return nil
	}
	pods := make([]*index.Pod, 0, len(s.moved))
	for _, st := range s.moved {
		st.moved = false
		pods = append(pods, st.Pod)
	}
	clear(s.moved)
	s.moved = s.moved[:0]
	return pods
}

// prune drops the shards and nodes that no pod is led to any more.
func (s *sharding) prune() {
	for _, of := range s.unusedShards {
		of.drop()
	}
	for _, n := range s.unusedNodes {
		n.drop()
	}
	s.unusedShards, s.unusedNodes = nil, nil
}

// assign divides the pods and rules of a namespace in one direction.
func (s *sharding) assign(ns *namespace, d npc.Direction, rs *ruleSet) {
	as := rs.assign(ns.pods, s.targets)
	for digits, policies := range as.policies {
		sh := rs.shards[digits]
		if sh == nil {
			sh = newShard(ns, d, digits, s.tables, s.base)
			rs.shards[digits] = sh
			s.trees[d].add(sh)
		}
		sh.hold(d, policies)
	}
	for digits, sh := range rs.shards {
		if as.policies[digits] == nil {
			s.unusedShards = append(s.unusedShards, sh)
			sh.hold(d, nil)
			delete(rs.shards, digits)
			s.trees[d].remove(sh)
		}
	}
	for _, st := range ns.pods {
		var to *shard
		if digits, ok := as.pods[st]; ok {
			to = rs.shards[digits]
		}
		if st.shards[d] != to {
			st.shards[d] = to
			s.move(st)
		}
	}
	if len(rs.shards) == 0 {
		ns.rules[d] = nil
	}
}

// rebuild builds the dispatch trees again whose shards changed.
func (s *sharding) rebuild() {
	for _, t := range s.trees {
		if !t.stale {
			continue
		}
		moved, unused := t.rebuild(s.base)
		s.unusedNodes = append(s.unusedNodes, unused...)
		for _, sh := range moved {
			for _, st := range sh.ns.pods {
				if st.shards[t.direction] == sh {
					s.move(st)
				}
			}
		}
	}
}
