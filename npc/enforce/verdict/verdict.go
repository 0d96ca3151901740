// Package verdict evaluates flows of local pods by the policies that are enforced.
//
// The policies are those that the controller has: compiled, and by address. The answer is the rule that decides,
// without reasons.
//
//	side := verdict.Side{Allowing: rules, Isolated: policy.Always} // what policies say of a pod in one direction
//	decision, left := verdict.Question{Peer: address, PeerPod: owner, ...}.Evaluate(index, &side, verdict.NoBound)
//
// It does not know which policies there are, nor what the kernel holds.
package verdict

import (
	"math"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// NamedRule is a rule of a policy, with what it does and its name.
type NamedRule struct {
	policy.MergedRule
	Action policy.Action
	// Of is the tier of a ClusterNetworkPolicy that has the rule.
	Of policy.Tier
	By
	// Staged is set for a rule of a staged policy, which is not enforced.
	Staged bool
}

// By names a rule.
type By struct {
	// Tier is that of a ClusterNetworkPolicy; empty for a NetworkPolicy.
	Tier string
	// Policy is the name, with its namespace for a NetworkPolicy.
	Policy string
	// Number counts the rules of a direction from 1.
	Number int
	// Content is the same as long as the rule matches the same and does the same with it, wherever it stands in its
	// policy.
	Content string
}

// NoBound is a number of comparisons that no evaluation reaches.
const NoBound = math.MaxInt

// Side is what policies say of a pod's flows in one direction.
type Side = policy.Applied[*NamedRule]

// Flow is a connection, or what stands for one in a protocol without connections, from and to addresses as the node
// forwards its packets.
type Flow struct {
	From, To netip.Addr
	flow.Service
}

// Verdict is what policies make of a flow.
type Verdict struct {
	// Evaluated is set if an end is a local pod's, whose policies were asked.
	Evaluated, Allowed bool
	// By is the rule that decides in Direction; the zero By if none does.
	By        By
	Direction npc.Direction
	// Also is the rule that allows on ingress what By allows on egress, if both ends are local pods'; else the zero By.
	Also By
}

// Difference is a verdict that a group of staged policies would change.
type Difference struct {
	Group string
	// Content is a text that changes when one of the group's policies changes.
	Content string
	// Policy is the staged policy that decides, with its namespace for a NetworkPolicy.
	Policy string
	Verdict
}

// Question is a flow as one of its pods sees it.
type Question struct {
	// Peer is the other end's address, and PeerPod its owner; nil if it has none.
	Peer    netip.Addr
	PeerPod *index.Pod
	// Destination is the pod that the flow goes to, on which names of ports are looked up; nil if it is no pod.
	Destination *index.Pod
	flow.Service
	// Exempt is set for flows that NetworkPolicies do not evaluate: to the pod itself, and to its node.
	Exempt bool
}

// Name returns the rule's name, or the zero By if there is no rule. It computes the name on the first call, because
// that costs more than an evaluation.
func (r *NamedRule) Name() By {
	if r == nil {
		return By{}
	}
	if r.Content == "" {
		r.Content = r.Digest(r.Action)
	}
	return r.By
}

// Addresses identifies addresses of others than pods.
type Addresses interface {
	// IsNode reports whether a selector matches a Node that has an address.
	IsNode(netip.Addr, policy.Selector) bool
	// IsNamed reports whether an address was learned for one of the domain names of a rule, also if that has expired.
	IsNamed(netip.Addr, []string) bool
}

// Decision is what policies say of a flow in one direction.
type Decision struct {
	Allowed bool
	// By is the rule that decides; nil if none does.
	By *NamedRule
	// Passed are the rules that passed the flow on before, by tier.
	Passed [len(policy.Tiers)]*NamedRule
}

// Evaluate returns whether the policies of a side allow a flow, and by which rules, and how many of most comparisons
// are left. If that is less than none, the decision is not known. A comparison takes about 10 ns.
func (q Question) Evaluate(known Addresses, s *Side, most int) (d Decision, left int) {
	c := comparison{Question: q, known: known, left: most}
	sets := policy.Fits()
	sets.IsEmpty = func(f policy.Fit) bool { return f == policy.Never || c.left < 0 }
	ask := policy.Question[policy.Fit, *NamedRule]{Sets: sets, Exempt: q.Exempt,
		Action: func(r *NamedRule) policy.Action { return r.Action },
		Matches: func(r *NamedRule) policy.Fit {
			return policy.FitOf(c.portFits(&r.MergedRule) && c.peerFits(&r.MergedRule))
		},
		Decide: func(is policy.Decision[*NamedRule], _, _ policy.Fit) {
			if is.Action == policy.Pass {
				d.Passed[is.Rule.Of] = is.Rule
			} else {
				d.Allowed, d.By = is.Action == policy.Accept, is.Rule
			}
		}}
	ask.Ask(s, policy.Always)
	return d, c.left
}

// comparison compares a flow with rules until no comparisons are left.
type comparison struct {
	Question
	known Addresses
	left  int
}

// spend counts comparisons, and reports whether they may be made.
func (c *comparison) spend(n int) bool {
	c.left -= n
	return c.left >= 0
}

func (c *comparison) portFits(r *policy.MergedRule) bool {
	if r.AnyPort {
		return c.spend(1)
	}
	for i := range r.Ports {
		p := &r.Ports[i]
		switch {
		case !c.spend(1):
			return false
		case p.Name == "":
			if p.Includes(c.Protocol, c.Port) {
				return true
			}
		case p.Protocol == c.Protocol && c.Destination != nil && c.spend(len(c.Destination.Ports)) &&
			slices.Contains(c.Destination.Ports, npc.NamedPort{Name: p.Name, Protocol: c.Protocol, Port: c.Port}):
			return true
		}
	}
	return false
}

func (c *comparison) peerFits(r *policy.MergedRule) bool {
	if r.AnyPeer {
		return true
	}
	for i := range r.Peers {
		p := &r.Peers[i]
		switch {
		case !c.spend(c.costOf(p)):
			return false
		case p.Block != nil:
			if p.Block.Contains(c.Peer) {
				return true
			}
		case p.Nodes != nil:
			if c.known.IsNode(c.Peer, *p.Nodes) {
				return true
			}
		case p.Names != nil:
			if c.known.IsNamed(c.Peer, p.Names) {
				return true
			}
		case c.PeerPod == nil:
		case p.Namespaces == nil && c.PeerPod.Namespace == p.Namespace,
			p.Namespaces != nil && c.PeerPod.InNamespaces(*p.Namespaces):
			if c.PeerPod.SelectedBy(p.Pods) {
				return true
			}
		}
	}
	return false
}

// costOf returns about how many comparisons it takes whether a peer matches.
func (c *comparison) costOf(p *policy.MergedPeer) int {
	switch {
	case p.Block != nil:
		return 1 + 2*bits.Len(uint(len(p.Block.Entries)))
	case p.Nodes != nil:
		return 1 + p.Nodes.Cost()
	case c.PeerPod == nil:
		return 1
	case p.Namespaces != nil:
		return p.Namespaces.Cost() + c.PeerPod.CostOf(p.Pods)
	case c.PeerPod.Namespace != p.Namespace:
		return 1
	}
	return c.PeerPod.CostOf(p.Pods)
}
