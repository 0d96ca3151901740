// Package kernelview has what is shown of a node's kernel: its sets, its rules, and what they do with a flow. It is
// only data, so that what prints it does not need a kernel.
package kernelview

import (
	"net/netip"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// SetRow is a set in the kernel.
type SetRow struct {
	Set  string `json:"set"`
	Type string `json:"type"`
	// About is what the set has; it is empty if that is not known.
	About string `json:"about,omitempty"`
	// Policies are those that use the set, as namespace/name.
	Policies []string `json:"policies"`
	// Members are the entries of the set.
	Members []Member `json:"members"`
}

// Member is an entry of a set.
type Member struct {
	Entry string `json:"entry"`
	// Is describes the entry: a pod, a part of an address block, another set.
	Is string `json:"is,omitempty"`
	// NoMatch reports whether the entry is an exception.
	NoMatch bool `json:"nomatch,omitempty"`
}

// NameRow is an address that was learned for a domain name.
type NameRow struct {
	Name string     `json:"name"`
	Addr netip.Addr `json:"address"`
	// Seconds are how long it counts if weave-npc runs; 0 if it counts only because weave-npc did not run.
	Seconds int    `json:"seconds"`
	Set     string `json:"set"`
	// Policies are those whose rules accept the set.
	Policies []string `json:"policies"`
}

// RuleRow is a rule in the kernel.
type RuleRow struct {
	Family string `json:"family"`
	Chain  string `json:"chain"`
	// Number is the position of the rule in its chain, from 1.
	Number int `json:"number"`
	// About is what the chain is for; it is empty if that is not known.
	About string `json:"about,omitempty"`
	// Rule is the rule as iptables prints it, Sets are those that it matches, Target is where it leads.
	Rule   string   `json:"rule"`
	Sets   []string `json:"sets,omitempty"`
	Target string   `json:"target"`
	// For is the rule's comment without its id: the rules of policies that the rule enforces, or its purpose.
	For string `json:"for,omitempty"`
	// PolicyRules are the rules of policies that the comment names, and Unnamed is set if there are more.
	PolicyRules []PolicyRule `json:"-"`
	Unnamed     bool         `json:"-"`
	// Match is what the rule matches, with sets replaced by what they have.
	Match string `json:"-"`
}

// PolicyRule names a rule of a policy that a rule in the kernel enforces.
type PolicyRule struct {
	// Tier is that of a cluster network policy; empty for a NetworkPolicy.
	Tier, Policy string
	// Number counts the rules of a direction from 1.
	Number    int
	Direction npc.Direction
}

// FlowTrace is what the chains and sets of a node do with a flow.
type FlowTrace struct {
	Node string    `json:"node"`
	Flow flow.Flow `json:"flow"`
	// Asked reports whether the node forwards the packet from or to a local pod, or filters what a local pod sends to
	// it. If not, the fields below are empty.
	Asked bool `json:"asked"`
	// ToNode is set if a local pod sends the packet to the node itself, so that it passes INPUT. Others pass FORWARD.
	ToNode bool `json:"to_node,omitempty"`
	// Accepted reports whether weave-npc's chains let the packet through, Policies whether the policies that this node
	// enforces do.
	Accepted bool `json:"accepted"`
	Policies bool `json:"policies"`
	// At is the rule that led to the verdict. It is empty if the packet reached the end of FORWARD or INPUT.
	At string `json:"at,omitempty"`
	// Trace are the rules that the packet matched, as chain and number.
	Trace []string `json:"way,omitempty"`
	// ByOthers reports whether a rule of FORWARD or INPUT that is not weave-npc's decided.
	ByOthers bool `json:"by_others,omitempty"`
	// PassedOver are rules of other programs that could not be evaluated.
	PassedOver []string `json:"passed_over,omitempty"`
	// Unbound is why others than the pod of this node that the packet comes from can send with its address. It is empty
	// if they cannot.
	Unbound string `json:"source_not_bound,omitempty"`
}
