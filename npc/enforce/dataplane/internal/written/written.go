// Package written tracks what the kernel has of one chain, as package members does for a set: what was found there, and
// what transactions wrote since.
//
// It knows neither what the rules are for nor who wants them, and touches no kernel.
//
//	c.Replaced(w)                           // the kernel took it
//	c.Change(next, false, iptables.Editing) // what it lacks of the next version
package written

import (
	"slices"

	"github.com/weave-npc/weave-npc/iptables"
)

// Chain is what the kernel has of a chain. Its zero value is a chain that the kernel does not have.
type Chain struct {
	// Exists is set while the kernel has the chain.
	Exists bool
	// Loaded is set if the kernel's rules were found, and it is not known what they were there for.
	Loaded bool
	// ids are those of the kernel's rules, in order; printed are their texts, once they were read since the chain was
	// last written. A rule that another program changes may keep its id.
	ids, printed []string
}

// Load takes over a chain that was read; exists is set if the kernel has it. A chain that is to be written again counts
// as empty: a chain of another layout, and one that another program changed in a way that its ids do not show.
func (c *Chain) Load(seen iptables.SeenChain, exists, foreign bool) {
	ids := seen.IDs
	if foreign || c.Exists && exists && c.Differs(seen) && slices.Equal(ids, c.ids) {
		ids = nil
	}
	*c = Chain{Exists: exists, Loaded: true, ids: ids}
}

// Replaced records that the chain was rewritten.
func (c *Chain) Replaced(w iptables.Chain) { *c = Chain{Exists: true, ids: w.IDs()} }

// Inserted records rules that were inserted at the chain's head.
func (c *Chain) Inserted(rules []iptables.Rule) {
	c.ids, c.printed = append(iptables.Chain{Rules: rules}.IDs(), c.ids...), nil
}

// Edited records that rules of the chain were changed at their places.
func (c *Chain) Edited(e iptables.Edit) { c.ids, c.printed = e.IDs(c.ids), nil }

// Deleted records that the kernel does not have the chain any more.
func (c *Chain) Deleted() { c.Exists, c.ids, c.printed = false, nil, nil }

// Printed takes over how the rules print that were read and do not differ.
func (c *Chain) Printed(seen iptables.SeenChain) { c.printed = seen.Text }

// Differs reports whether a chain that was read is not as it was left.
func (c *Chain) Differs(seen iptables.SeenChain) bool {
	return !slices.Equal(seen.IDs, c.ids) || c.printed != nil && !slices.Equal(seen.Text, c.printed)
}

// Change compares the desired chain with the kernel's rules; ordered is set if the order of its rules matters. A chain
// that was read from the kernel is not edited but rewritten: another program may have changed it, or kept it from being
// changed.
func (c *Chain) Change(w iptables.Chain, ordered bool, editing iptables.Editing) iptables.ChainChange {
	switch {
	case !c.Exists:
		return iptables.ChainChange{Replace: true}
	case !ordered:
		return w.Since(c.ids)
	case c.Loaded:
		editing = iptables.Editing{}
	}
	return w.SinceInOrder(c.ids, editing)
}

// Count returns the number of rules.
func (c *Chain) Count() int { return len(c.ids) }
