package networkpolicy

import (
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
)

// namespace is what is isolated in one namespace, by which policies.
type namespace struct {
	name     string
	policies map[string]*enforced     // name -> policy
	pods     map[*index.Pod]*podState // local pods
	// isolating counts the policies by the directions that they isolate pods in.
	isolating [len(npc.Directions)]int
	rules     [len(npc.Directions)]*ruleSet
}

// podState is the isolation of one local pod.
type podState struct {
	*index.Pod
	// isolating counts the policies that select the pod by the directions that they isolate it in.
	isolating [len(npc.Directions)]int
	// isolated is set for each direction that the pod is isolated in.
	isolated [len(npc.Directions)]bool
	// shards have the rules for the pod; nil if there are none.
	shards [len(npc.Directions)]*shard
	// moved is set while the pod is among those that belong to other sets.
	moved bool
}

// ruleSet is the rules of one namespace in one direction.
type ruleSet struct {
	// users are the active policies with rules in the direction.
	users map[*enforced]struct{}
	// shards have the rules: digits -> shard.
	shards map[string]*shard
}

// ruleSet returns a namespace's rules in a direction, making them if need be.
func (ns *namespace) ruleSet(d npc.Direction) *ruleSet {
	if ns.rules[d] == nil {
		ns.rules[d] = &ruleSet{users: map[*enforced]struct{}{}, shards: map[string]*shard{}}
	}
	return ns.rules[d]
}

// withdraw takes a policy out of the users of the namespace's rules.
func (ns *namespace) withdraw(p *enforced) {
	for _, rs := range ns.rules {
		if rs != nil {
			delete(rs.users, p)
		}
	}
}

// count adds n to what counts a policy that comes or goes with the pods that it selects.
func (ns *namespace) count(p *enforced, n int) {
	addTo(&ns.isolating, p, n)
	for q := range p.selected {
		addTo(&ns.pods[q].isolating, p, n)
	}
}

// addTo adds n to counts of the directions that a policy isolates pods in.
func addTo(counts *[len(npc.Directions)]int, p *enforced, n int) {
	for d := range npc.Directions {
		if p.Isolates[d] {
			counts[d] += n
		}
	}
}

// isolated returns the directions that policies isolate a pod in. Any may select one whose labels are not known.
func (ns *namespace) isolated(st *podState) (is [len(npc.Directions)]bool) {
	for d := range npc.Directions {
		is[d] = st.isolating[d] > 0 || st.Unlabelled && ns.isolating[d] > 0
	}
	return is
}
