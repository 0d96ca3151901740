package networkpolicy

import (
	"maps"
	"slices"

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
	// MaxRules is how many rules may differ in their peers alone. With more, one rule asks for the peers of all.
	MaxRules int
}

// DefaultSharding returns what was measured to be best.
func DefaultSharding() Sharding { return Sharding{Targets: 8, MaxLeaves: 2, MaxRules: 4} }

// sharding keeps the shards of all namespaces, and the trees that dispatch to them.
type sharding struct {
	Sharding
	tables [len(npc.Families)]*dataplane.Table
	sets   *index.Sets
	base   *rules.Base
	trees  [len(npc.Directions)]*dispatchTree
	// stale are the shards that have other rules.
	stale []*shard
	// retired are the rules whose sets wait for chains to be written.
	retired []retired
	// moved are pods that belong to other sets.
	moved []*podState
	// unusedShards and unusedNodes are to be dropped once no pod is in their sets.
	unusedShards []*shard
	unusedNodes  []*node
}

func newSharding(c Sharding, tables [len(npc.Families)]*dataplane.Table, sets *index.Sets, base *rules.Base,
	roots [len(npc.Directions)][len(npc.Families)]*dataplane.Chain) sharding {
	s := sharding{Sharding: c, tables: tables, sets: sets, base: base}
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

// hold makes a shard have the rules of some policies, and no others, once they are written.
func (s *sharding) hold(sh *shard, policies map[*enforced]struct{}) {
	if maps.Equal(sh.policies, policies) {
		return
	}
	sh.policies = maps.Clone(policies)
	if sh.stale {
		return
	}
	sh.stale, s.stale = true, append(s.stale, sh)
	for f, c := range sh.chains {
		sh.reconciled[f] = c.Reconciled()
		c.Touch()
	}
}

// write has the rules of shards written that changed. What is asked for is there before what is not goes.
func (s *sharding) write() {
	was := make([][len(npc.Families)]entries, 0, len(s.stale))
	for _, sh := range s.stale {
		was = append(was, sh.write())
	}
	for i, sh := range s.stale {
		s.retired = append(s.retired, sh.erase(was[i])...)
	}
	s.stale = nil
}

// release gives up the sets of retired rules that the kernel no longer has. It reports whether there were any.
func (s *sharding) release() bool {
	before := len(s.retired)
	s.retired = slices.DeleteFunc(s.retired, func(r retired) bool {
		if r.asked() {
			return false
		}
		s.sets.Deprovision(r.sets, r.users...)
		return true
	})
	return len(s.retired) < before
}

// prune drops the shards and nodes that no pod is led to any more.
func (s *sharding) prune() {
	if len(s.unusedShards) > 0 {
		s.write()
	}
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
	as := rs.assign(ns.pods, s.Targets)
	for digits, policies := range as.policies {
		sh := rs.shards[digits]
		if sh == nil {
			sh = s.newShard(ns, d, digits)
			rs.shards[digits] = sh
			s.trees[d].add(sh)
		}
		s.hold(sh, policies)
	}
	for digits, sh := range rs.shards {
		if as.policies[digits] == nil {
			s.unusedShards = append(s.unusedShards, sh)
			s.hold(sh, nil)
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
