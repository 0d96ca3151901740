// Package setref works on the sets that rules refer to: it gives them the names that the kernel has them by, and finds
// those that the kernel does not take.
//
//	setref.Aliases{"weave-a": "weave-b"}.Match("-m set --match-set weave-a src") // of weave-b
//	setref.Rejected{"weave-a": "exists"}.By("-m set --match-set weave-a src")    // "exists"
package setref

import (
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// Aliases are the sets that have another name in the kernel than their own -> that name.
type Aliases map[string]string

// Match returns a rule's match with the names that sets have in the kernel.
func (a Aliases) Match(match string) string {
	for key, name := range a {
		match = strings.ReplaceAll(match, naming.Match(key, ""), naming.Match(name, ""))
		match = strings.ReplaceAll(match, naming.NoMatch(key, ""), naming.NoMatch(name, ""))
	}
	return match
}

// Rules returns rules with the names that sets have in the kernel.
func (a Aliases) Rules(rules []iptables.Rule) []iptables.Rule {
	if len(a) == 0 {
		return rules
	}
	rules = slices.Clone(rules)
	for i := range rules {
		rules[i].Match = a.Match(rules[i].Match)
	}
	return rules
}

// Rejected are sets that the kernel did not take, or not as they are to be -> why, by the names that rules have for
// them.
type Rejected map[string]string

// By returns why for one of the sets that a match refers to; empty if it refers to none of them.
func (r Rejected) By(match string) string {
	if len(r) == 0 {
		return "" // as nearly always
	}
	for _, name := range (iptables.Rule{Match: match}).Sets() {
		if why := r[name]; why != "" {
			return why
		}
	}
	return ""
}
