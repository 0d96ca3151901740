// Package found tells by the names of chains that were read from a kernel what they are for, when nothing else is known of them yet.
//
//	found.ChainOf("WEAVE-NPC-A-...").List // true: it has the rules of policies of the Admin tier
package found

import (
	"regexp"
	"strings"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/dataplane/order"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// Chain is what a chain is for.
type Chain struct {
	// List is set if it has the rules of a list of a tier.
	List bool
	// OfPolicies is set if it stands for namespaces' policies, and Dispatches if it leads to such chains, or to lists of a tier.
	OfPolicies, Dispatches bool
	// At is where packets are judged that come to it, if it is one of these two.
	At Stage
	// Leads begins the targets of its rules that lead on.
	Leads string
}

// Stage is where packets of a direction are judged by one of several chains: by shards, or by lists of a tier.
type Stage struct {
	Judges    order.Judges
	Direction traffic.Direction
}

var (
	// shardOrDispatch matches the names of the chains that stand for namespaces' policies; nodes of the dispatch tree have digits only.
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
		for _, d := range traffic.Directions {
			if name == naming.TierChain(t.String(), d) {
				return Chain{Dispatches: true, At: Stage{order.ListOf(t), d}, Leads: "-g " + naming.ListPrefix(t.String())}
			}
		}
	}
	parts := shardOrDispatch.FindStringSubmatch(name)
	c := Chain{OfPolicies: parts != nil, At: Stage{Judges: order.Tail}}
	c.Dispatches = name == naming.IngressChain || name == naming.EgressCustomChain || parts != nil && strings.Trim(parts[2], "01") == ""
	if name == naming.EgressCustomChain || parts != nil && parts[1] == "E" {
		c.At.Direction = traffic.Egress
	}
	c.Leads = "-g " + naming.NodeChain(c.At.Direction, "")
	return c
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

// Layout returns the layout of the chains that were read: of several, one that is another version's. It is empty if there are none.
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
