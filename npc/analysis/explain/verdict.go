package explain

import (
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// Verdict is what happens to a flow, and why.
type Verdict struct {
	Flow    flow.Flow `json:"flow"`
	Allowed bool      `json:"allowed"`
	// Unknown is set if neither is known: something could not be read that decides, and nothing that was read denies
	// the flow.
	Unknown bool `json:"unknown,omitempty"`
	// Egress is the verdict of the policies that choose the source, Ingress of those that choose the destination. Both
	// must allow the flow.
	Egress  Side `json:"egress"`
	Ingress Side `json:"ingress"`
}

// Side returns the side of a direction.
func (v Verdict) Side(d npc.Direction) Side {
	if d == npc.Ingress {
		return v.Ingress
	}
	return v.Egress
}

// Forwarded reports whether a node forwards the flow, from or to a pod that it enforces policies for.
func (v Verdict) Forwarded() bool {
	evaluated := false
	for _, s := range []Side{v.Egress, v.Ingress} {
		if s.stays {
			return false
		}
		evaluated = evaluated || s.Reason != noPod && s.Reason != otherNode
	}
	return evaluated && v.Flow.From.Addr.IsValid() && v.Flow.To.Addr.IsValid()
}

// ToNode reports whether a pod sends the flow to its own node, which enforces its policies.
func (v Verdict) ToNode() bool { return v.Egress.toNode && v.Flow.From.Addr.IsValid() }

// Side is one direction of a verdict.
type Side struct {
	Direction npc.Direction `json:"-"`
	// Pod is the pod that policies may isolate, by namespace/name; empty if the end is no pod.
	Pod     string `json:"pod,omitempty"`
	Allowed bool   `json:"allowed"`
	Reason  Reason `json:"because"`
	// Unknown is what could not be read and may decide; empty if the verdict is known. An unknown verdict counts as not
	// allowed.
	Unknown string `json:"unknown,omitempty"`
	// By is the rule of a cluster network policy that decides; nil if none does.
	By *Decision `json:"by,omitempty"`
	// Without is what would happen without the rule that decides; nil if no rule of a cluster network policy does.
	Without *Outcome `json:"without_it,omitempty"`
	// Conflict describes what contradicts the pod's claim to its address; empty if nothing does.
	Conflict string `json:"conflict,omitempty"`
	// ClusterPolicies are the cluster network policies that were asked, in order.
	ClusterPolicies []ClusterPolicyReason `json:"cluster_policies,omitempty"`
	// Policies are those that isolate the pod in this direction, ordered by namespace/name. There are none if the
	// reason is another one.
	Policies []PolicyReason `json:"policies,omitempty"`
	// stays is set if the flow does not leave the pod, or the pod's node.
	stays bool
	// toNode is set if the flow is from the pod to the pod's own node.
	toNode bool
	// isolated reports whether a NetworkPolicy isolates the pod that closes the address, if one does.
	isolated bool
	// tiered reports whether there are cluster network policies.
	tiered bool
}

// Outcome is what happens in a direction, and why.
type Outcome struct {
	Allowed bool   `json:"allowed"`
	Reason  Reason `json:"because"`
	// By is the rule of a cluster network policy that decides; nil if none does.
	By *Decision `json:"by,omitempty"`
}

// Reason is why a side allows a flow or denies it.
type Reason string

// The reasons of a side. Scripts read them in JSON.
const (
	// noPod: the end is no pod, so that nothing isolates it.
	noPod Reason = "no pod"
	// otherNode: the pod is not on the node that was asked for.
	otherNode Reason = "other node"
	// itself: a pod reaches itself.
	itself Reason = "itself"
	// ownNode: a pod and its node reach each other.
	ownNode Reason = "own node"
	// multicast: multicast is allowed unless weave-npc runs with --allow-mcast=false.
	multicast Reason = "multicast"
	// conflicting: a pod of the same node that policies may deny something claims the same address.
	conflicting Reason = "conflicting address"
	// waiting: policies may deny the pod something, and its address does not count.
	waiting Reason = "waiting for its address"
	// notIsolated: no policy isolates the pod in this direction.
	notIsolated Reason = "not isolated"
	// ruleAllows: a rule of a policy allows the flow.
	ruleAllows Reason = "a rule allows it"
	// nothingAllows: policies isolate the pod, and no rule allows the flow.
	nothingAllows Reason = "no rule allows it"
	// unlabelled: the same, and only policies that select whatever the labels are could allow it.
	unlabelled Reason = "the pod's labels are too large or its ports too many, so that no policy that depends on them " +
		"allows anything"
	// tierAccepts and tierDenies: a rule of a cluster network policy does.
	tierAccepts Reason = "a cluster network policy accepts it"
	tierDenies  Reason = "a cluster network policy denies it"
	// unknown: what decides could not be read.
	unknown Reason = "unknown"
)

// PolicyReason is the verdict of one policy.
type PolicyReason struct {
	// Policy is its namespace/name.
	Policy string `json:"policy"`
	Allows bool   `json:"allows"`
	// Invalid is the error that makes the policy allow nothing; empty if it could be compiled.
	Invalid string       `json:"invalid,omitempty"`
	Rules   []RuleReason `json:"rules,omitempty"`
}

// RuleReason is the verdict of one rule.
type RuleReason struct {
	// Number counts the rules of a direction from 1.
	Number int  `json:"rule"`
	Allows bool `json:"allows"`
	matching
}

// matching is what a flow and a rule have in common.
type matching struct {
	// Peers and Ports hold a reason for each item of the rule. A rule without peers matches every peer, one without
	// ports every port.
	Peers []PeerReason `json:"peers,omitempty"`
	Ports []PortReason `json:"ports,omitempty"`
}

// fits reports whether the rule matches the flow.
func (m matching) fits() bool { return m.peerFits() && m.PortFits() }

// peerFits reports whether the flow's other end is one of the rule's peers.
func (m matching) peerFits() bool {
	return len(m.Peers) == 0 || slices.ContainsFunc(m.Peers, func(p PeerReason) bool { return p.Mismatch == fits })
}

// PortFits reports whether the flow's protocol and port are among the rule's.
func (m matching) PortFits() bool {
	return len(m.Ports) == 0 || slices.ContainsFunc(m.Ports, func(p PortReason) bool { return p.Fits })
}
