package dataplane

import (
	"maps"
	"slices"

	"github.com/weave-npc/weave-npc/iptables"
)

// Chain is an iptables chain as it is desired, beside what is known of the kernel's.
type Chain struct {
	name  string
	table *Table
	// fixed is set if every node has the chain.
	fixed bool
	// namespace is the one whose rules the chain has; empty if it leads to those of several.
	namespace string
	// about describes for humans what the chain is for.
	about          string
	wanted, exists bool
	// rules have no order among them, unless the chain is ordered: match -> rule.
	rules map[string]*rule
	// target is what a packet gets that one of the rules matches; a rule may have its own.
	target string
	// tail follows the rules, in order.
	tail []iptables.Rule
	// loaded is set if the kernel's rules were found, and it is not known what they were there for.
	loaded bool
	// have are the ids of the kernel's rules, in order; printed are their texts, once they were read since the chain was last
	// written. A rule that somebody else changes may keep its id.
	have, printed []string
	// found are the texts of the rules that were found at the start, until they have been looked at; held are those of them that stay.
	found []string
	held  []iptables.Rule
	// met is how many packets the rule had matched that matched most, when everything was read last; from 0 again when the chain is
	// rewritten. Every packet that comes to a chain that reports meets its first rule; hashlimit drops some before the last.
	met uint64
	// ordered is set if what the chain does depends on the order of its rules.
	ordered bool
	// lazy is set if a surplus rule does no harm, so that its removal can wait.
	lazy bool
	// touched is the table's count of changes when the chain was last marked for the next plan.
	touched uint64
}

// Name returns the chain's name.
func (c *Chain) Name() string { return c.name }

// Drop makes the chain no longer desired.
func (c *Chain) Drop() {
	c.wanted = false
	if !c.exists {
		c.table.removeChain(c)
		return
	}
	c.touch()
}

// setTail replaces the rules at the chain's end.
func (c *Chain) setTail(tail []iptables.Rule) {
	c.tail = tail
	c.touch()
}

// SetRules replaces the chain's rules by those of the given matches.
func (c *Chain) SetRules(rules map[string]Rule) {
	if maps.EqualFunc(c.rules, rules, func(a *rule, b Rule) bool { return a.target == b.Target && a.order == b.Order }) {
		return
	}
	c.rules = make(map[string]*rule, len(rules))
	for match, r := range rules {
		c.rules[match] = &rule{match: match, target: r.Target, about: r.About, order: r.Order}
	}
	c.touch()
}

// Own makes a policy an owner of a rule; number is that of the rule in the policy, from 1.
func (c *Chain) Own(o *Owner, match string, number int) {
	r := c.rules[match]
	if r == nil {
		r = &rule{match: match, owners: map[*Owner]int{}}
		c.rules[match] = r
	}
	if _, ok := r.owners[o]; !ok {
		r.owners[o] = number
	}
	c.accountFor(r)
	c.touch()
}

// Disown ends a policy's ownership of a rule, and the rule with its last owner.
func (c *Chain) Disown(o *Owner, match string) {
	r := c.rules[match]
	if r == nil {
		return // the policy has the rule twice
	}
	if delete(r.owners, o); len(r.owners) == 0 {
		delete(c.rules, match)
	}
	c.touch()
}

// touch marks the chain for the next plan.
func (c *Chain) touch() {
	if t := c.table; t.active || c.fixed || !c.wanted {
		t.changes++
		c.touched = t.changes
		t.dirtyChains[c] = struct{}{}
	}
}

// desired returns the chain as it is to be in the kernel.
func (c *Chain) desired() iptables.Chain {
	w := iptables.Chain{Name: c.name, Tail: c.desiredTail(), Rules: make([]iptables.Rule, 0, len(c.rules))}
	for _, r := range c.rules {
		if !c.table.active && !r.reports {
			continue // what the rule leads to is not there
		}
		if c.table.rejections.ofRule(r) == "" {
			w.Rules = append(w.Rules, r.rendered(c))
		}
	}
	w.Rules = append(w.Rules, c.stillHeld(w)...)
	return w
}

func (c *Chain) desiredTail() []iptables.Rule {
	if len(c.table.aliases) == 0 {
		return c.tail
	}
	tail := slices.Clone(c.tail)
	for i := range tail {
		tail[i].Match = c.table.resolve(tail[i].Match)
	}
	return tail
}

// change is what makes the kernel's chain the desired one.
type change struct {
	// replace is set if the chain has to be rewritten.
	replace bool
	// insert are rules to put at the chain's head, where that is enough.
	insert []iptables.Rule
	// surplus is set if all that remains to be done is to remove rules.
	surplus bool
}

// diff compares the desired chain with the kernel's rules, by their ids.
func (c *Chain) diff(w iptables.Chain) change {
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

// unready reports whether members must not come to the kernel's chain before the next plan has changed it: it lacks rules,
// or has rules that are not desired and will be gone.
func (c *Chain) unready() bool {
	if _, dirty := c.table.dirtyChains[c]; !dirty || !c.exists {
		return false
	}
	ch := c.diff(c.desired())
	return ch.replace || len(ch.insert) > 0 || ch.surplus && !c.lazy
}

// replaced records that the kernel's chain was rewritten.
func (c *Chain) replaced(w iptables.Chain) {
	c.exists, c.have, c.printed, c.loaded = true, w.IDs(), nil, false
}

// inserted records rules that were inserted at the head of the kernel's chain.
func (c *Chain) inserted(rules []iptables.Rule) {
	c.have, c.printed = append(iptables.Chain{Rules: rules}.IDs(), c.have...), nil
}

// changed reports whether a chain that was read is not as it was left.
func (c *Chain) changed(seen iptables.SeenChain) bool {
	return !slices.Equal(seen.IDs, c.have) || c.printed != nil && !slices.Equal(seen.Text, c.printed)
}
