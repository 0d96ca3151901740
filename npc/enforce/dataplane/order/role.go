package order

import (
	"cmp"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Role is the effect of a set on packets of its members, where the effect depends on the order of changes. The zero
// Role is that of a set that NetworkPolicies ask for, whose rules allow.
type Role struct {
	// Cluster is set for a set that a rule of a cluster network policy asks.
	Cluster bool
	// Baseline is set if the rule's policy is of the Baseline tier. Otherwise it is of the Admin tier.
	Baseline bool
	Action   policy.Action
	// Rank orders the rules of a tier. Those with lower ranks come first.
	Rank int
	// Target is set for a set of local pods that NetworkPolicies select: those evaluate them after the Admin tier.
	Target bool
}

// tier returns the place of the role's tier among the tiers.
func (r Role) tier() int {
	switch {
	case !r.Cluster:
		return 1
	case r.Baseline:
		return 2
	}
	return 0
}

// Effect returns the effective action of the rules on packets that reach them: to pass the Baseline tier is to be
// accepted.
func (r Role) Effect() policy.Action {
	if r.Cluster && r.Baseline && r.Action == policy.Pass {
		return policy.Accept
	}
	return r.Action
}

// Evaluation is what the chain does that members of a set of local pods are sent to, or that asks for them. It is zero
// for other sets.
type Evaluation uint8

const (
	// Tail sets select where a pod's packets are evaluated after the Admin tier: default-allow, Baseline policies or
	// NetworkPolicies.
	Tail Evaluation = iota + 1
	// BaselineList is the tail of a pod with Baseline policies.
	BaselineList
	// adminList sets select the Admin policies that evaluate a pod's packets.
	adminList
	// ClosedToNode is the set of pods whose packets to this node are dropped.
	ClosedToNode
)

// ListOf returns the evaluation of sets that dispatch to the lists of a tier.
func ListOf(t policy.Tier) Evaluation {
	if t == policy.Baseline {
		return BaselineList
	}
	return adminList
}

// Set is what the order depends on of a set.
type Set struct {
	Role       Role
	Evaluation Evaluation
	// Direction is that of the packets of local pods.
	Direction npc.Direction
	// Peers is set for a set of addresses, or of such sets, that rules in the kernel may ask for.
	Peers bool
	// Height is that of a set of local pods above the rules that it leads to; less than 0 for one that leads nowhere.
	Height int
}

// Compare orders sets of local pods by their heights above the rules that they dispatch to, and sets of equal heights,
// as others, by their roles.
func Compare(a, b Set) int {
	return cmp.Or(cmp.Compare(a.Height, b.Height), cmp.Compare(a.Role.tier(), b.Role.tier()),
		cmp.Compare(a.Role.Rank, b.Role.Rank))
}
