package npc

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/weave-npc/weave-npc/iptables"
)

// chain is an iptables chain as the model wants it beside what is known of the kernel's.
type chain struct {
	name  string
	table *table
	// fixed says that every node has the chain.
	fixed bool
	// namespace is the one whose rules the chain has; empty if it leads to those of several.
	namespace string
	// about says for humans what the chain is for.
	about          string
	wanted, exists bool
	// rules are those that have no order among them, unless the chain is ordered: match -> rule.
	rules map[string]*rule
	// target is what a packet gets that one of the rules matches; a rule may have its own.
	target string
	// tail follows the rules, in order.
	tail []iptables.Rule
	// adopted says that the kernel's rules were found, and that it is not known what they were there for.
	adopted bool
	// have are the ids of the kernel's rules, in order; printed are their texts, once they were read since we last
	// wrote the chain. A rule that somebody else changes may keep its id.
	have, printed []string
	// found are the texts of the rules that were found at the start, until they have been looked at; held are those of them that stay.
	found []string
	held  []iptables.Rule
	// met is how many packets the rule had matched that matched most, when all was read last; from 0 again when the chain is written
	// anew. Every packet that comes to a chain that reports meets its first rule; hashlimit drops some before the last.
	met uint64
	// ordered says that what the chain does depends on the order of its rules.
	ordered bool
	// lazy says that a rule too many does no harm, so that its removal can wait.
	lazy bool
}

// touch has the chain looked at by the next plan.
func (c *chain) touch() {
	if c.table.active || c.fixed || !c.wanted {
		c.table.dirtyChains[c] = struct{}{}
	}
}

// rule is a rule of a chain and those on whose behalf it is there.
type rule struct {
	match string
	// target is the rule's own; empty for the chain's.
	target string
	// about says for humans what the rule is for, if no policy owns it.
	about string
	// order sorts the rules, where that saves time or the chain is an ordered one.
	order int
	// reports says that the rule only reports: it leads nowhere and can be left out.
	reports bool
	// owners are the policies that ask for the rule -> the number of the rule in the policy, from 1.
	owners map[*policy]int
	// refused says why the kernel did not take the rule.
	refused string
}

// maxNamedOwners is how many policies a comment names.
const maxNamedOwners = 3

// comment names the policies that a rule is there for.
func (r *rule) comment() string {
	if r.about != "" {
		return r.about
	}
	names := make([]string, 0, len(r.owners))
	for p, n := range r.owners {
		names = append(names, fmt.Sprintf("%s rule %d", p.key(), n))
	}
	sort.Strings(names)
	if more := len(names) - maxNamedOwners; more > 0 {
		names = append(names[:maxNamedOwners], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, " / ")
}

// rendered is the rule as iptables takes it.
func (r *rule) rendered(c *chain) iptables.Rule {
	target := r.target
	if target == "" {
		target = c.target
	}
	return iptables.Rule{Match: c.table.redirect(r.match), Target: target, Comment: r.comment(), Order: r.order}
}

func (r *rule) id(c *chain) string { return r.rendered(c).ID() }

// want is the chain as it is to be in the kernel.
func (c *chain) want() iptables.Chain {
	w := iptables.Chain{Name: c.name, Tail: c.wantTail(), Rules: make([]iptables.Rule, 0, len(c.rules))}
	for _, r := range c.rules {
		if !c.table.active && !r.reports {
			continue // what the rule leads to is not there
		}
		if c.table.refusal(r) == "" {
			w.Rules = append(w.Rules, r.rendered(c))
		}
	}
	w.Rules = append(w.Rules, c.stillHeld(w.IDs())...)
	return w
}

func (c *chain) wantTail() []iptables.Rule {
	if len(c.table.moved) == 0 {
		return c.tail
	}
	tail := slices.Clone(c.tail)
	for i := range tail {
		tail[i].Match = c.table.redirect(tail[i].Match)
	}
	return tail
}

// change is what makes a chain of the kernel the wanted one.
type change struct {
	// replace says that the chain has to be written anew.
	replace bool
	// insert are rules to put at the chain's head, where that is enough.
	insert []iptables.Rule
	// surplus says that all that remains to be done is to remove rules.
	surplus bool
}

// diff compares the wanted chain with the kernel's rules, by their ids.
func (c *chain) diff(w iptables.Chain) change {
	if !c.exists {
		return change{replace: true}
	}
	rest := len(c.have) - len(w.Tail)
	if rest < 0 || !slices.EqualFunc(c.have[rest:], w.Tail, func(id string, r iptables.Rule) bool { return id == r.ID() }) {
		return change{replace: true}
	}
	if c.ordered && !slices.Equal(c.have, w.IDs()) {
		return change{replace: true}
	}
	extra := map[string]bool{}
	for _, id := range c.have[:rest] {
		if extra[id] {
			return change{replace: true} // twice the same rule
		}
		extra[id] = true
	}
	var ch change
	for _, r := range w.Rules {
		if id := r.ID(); extra[id] {
			delete(extra, id)
		} else {
			ch.insert = append(ch.insert, r)
		}
	}
	ch.surplus = len(extra) > 0
	return ch
}

// unready says whether members must not come to the kernel's chain before the next plan has changed it: it lacks rules, or has rules that are not
// wanted and will be gone.
func (c *chain) unready() bool {
	if _, dirty := c.table.dirtyChains[c]; !dirty || !c.exists {
		return false
	}
	ch := c.diff(c.want())
	return ch.replace || len(ch.insert) > 0 || ch.surplus && !c.lazy
}

// applied takes the wanted chain for what the kernel has.
func (c *chain) applied(w iptables.Chain) {
	c.exists, c.have, c.printed, c.adopted = true, w.IDs(), nil, false
}

// changed says whether a chain that was read is not as we left it.
func (c *chain) changed(seen iptables.SeenChain) bool {
	return !slices.Equal(seen.IDs, c.have) || c.printed != nil && !slices.Equal(seen.Text, c.printed)
}

// inserted takes rules for inserted at the head of the kernel's chain.
func (c *chain) inserted(rules []iptables.Rule) {
	c.have, c.printed = append(iptables.Chain{Rules: rules}.IDs(), c.have...), nil
}
