// Package found identifies the purpose of sets, chains and rules that were read from a kernel when nothing else is
// known of them yet: by their names, and by the texts of rules.
//
//	found.ChainOf("WEAVE-NPC-A-...").List // true: it has the rules of policies of the Admin tier
package found

import (
	"iter"
	"regexp"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/order"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Chain is what a chain is for.
type Chain struct {
	// List is set if it has the rules of a list of a tier.
	List bool
	// OfPolicies is set if the chain stands for namespaces' policies, and Dispatches if it jumps to such chains, or to
	// lists of a tier.
	OfPolicies, Dispatches bool
	// At is where the chain's packets are evaluated, if OfPolicies or Dispatches is set.
	At Dispatch
	// leads is the prefix of the targets of its rules that dispatch further.
	leads string
}

// Dispatch is where packets of a direction are evaluated by one of several chains: by shards, or by lists of a tier.
type Dispatch struct {
	Evaluation order.Evaluation
	Direction  npc.Direction
	// Depth is how far the chain is from where the dispatch begins.
	Depth int
}

var (
	// shardOrDispatch matches the names of the chains that stand for namespaces' policies; nodes of the dispatch tree
	// have digits only.
	shardOrDispatch = regexp.MustCompile(`^` + naming.ChainPrefix + `-([IE])-([a-z2-7]{16}|[01]+)$`)
	// isList matches the names of the chains with the rules of lists of tiers.
	isList = regexp.MustCompile(`^` + naming.ChainPrefix + `-[AB]-[a-z2-7]{16}$`)
)

// ChainOf returns what the chain of a name is for.
func ChainOf(name string) Chain {
	if isList.MatchString(name) {
		return Chain{List: true}
	}
	for _, t := range policy.Tiers {
		for _, d := range npc.Directions {
			if name == naming.TierChain(t.String(), d) {
				return Chain{Dispatches: true, At: Dispatch{Evaluation: order.ListOf(t), Direction: d},
					leads: "-g " + naming.ListPrefix(t.String())}
			}
		}
	}
	parts := shardOrDispatch.FindStringSubmatch(name)
	c := Chain{OfPolicies: parts != nil, At: Dispatch{Evaluation: order.Tail}}
	c.Dispatches = name == naming.IngressChain || name == naming.EgressCustomChain ||
		parts != nil && strings.Trim(parts[2], "01") == ""
	if name == naming.EgressCustomChain || parts != nil && parts[1] == "E" {
		c.At.Direction = npc.Egress
	}
	c.leads = "-g " + naming.NodeChain(c.At.Direction, "")
	if c.Dispatches && parts != nil {
		c.At.Depth = len(parts[2])
	}
	return c
}

// everywhere reports whether every node has the chain: it is none that policies ask for.
func (c Chain) everywhere() bool {
	tiers := c.Dispatches && c.At.Evaluation != order.Tail
	return !c.List && !c.OfPolicies && !tiers
}

// Rules yields, of the given texts, those of the chain's rules that serve its purpose: all of a list, those that jump
// further if the chain dispatches, otherwise those that allow. Rules that another program has written are not among
// them.
func (c Chain) Rules(texts []string) iter.Seq[iptables.Rule] {
	return func(yield func(iptables.Rule) bool) {
		for _, text := range texts {
			if r, ours := iptables.Found(text); ours && c.serves(r) && !yield(r) {
				return
			}
		}
	}
}

// serves reports whether a rule does what the chain is for.
func (c Chain) serves(r iptables.Rule) bool {
	switch {
	case c.List:
		return true
	case c.Dispatches:
		return c.leadsOn(r)
	}
	return r.Target == "-j ACCEPT" || r.Target == "-j RETURN"
}

// leadsOn reports whether a rule leads from a chain that dispatches to others.
func (c Chain) leadsOn(r iptables.Rule) bool {
	return c.Dispatches && strings.HasPrefix(r.Target, c.leads)
}

// LeadsNoPod reports whether a rule leads on from a chain that dispatches, and asks a set for its members that has
// none.
func (c Chain) LeadsNoPod(r iptables.Rule, empty func(set string) bool) bool {
	return c.leadsOn(r) && slices.ContainsFunc(r.Sets(), empty)
}

// Lists reports whether there are lists of tiers among the chains that were read.
func Lists(seen iptables.Seen) bool {
	for name := range seen.Chains {
		if isList.MatchString(name) {
			return true
		}
	}
	return false
}

// Layout returns the layout of the chains that were read: of several, one that is another version's. It is empty if
// there are none.
func Layout(seen iptables.Seen) string {
	found := ""
	for name := range seen.Chains {
		version, marked := strings.CutPrefix(name, naming.LayoutPrefix)
		if marked && (version != naming.Layout || found == "") {
			found = version
		}
	}
	_, unmarked := seen.Chains[naming.MainChain]
	if found == "" && unmarked {
		found = naming.Layout
	}
	return found
}
