package iptables

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Edit changes rules of an existing chain at their places.
//
// iptables inserts only by rule number, and the numbers are wrong if another process has inserted or deleted a rule
// since the chain was read or written. So Update appends a rule that jumps to the chain Probe, deletes that rule by the
// number that it has in a chain of the expected length, and finally deletes Probe, which fails while a rule still jumps
// there. With one rule more or less the update thus fails, and nothing has changed. A replaced rule does not move
// others. Reordered rules do not make the update fail: rules may then be deleted and inserted at wrong places, in a
// chain that was wrong before, until the next read finds the drift and rewrites the chain.
type Edit struct {
	Chain string
	// Rules is how many rules the chain has.
	Rules int
	// Hunks are the changes, from the chain's head to its end. They neither overlap nor touch.
	Hunks []Hunk
	// Probe is the name of a chain to which no other rule leads. The update makes and deletes it.
	Probe string
}

// Hunk replaces consecutive rules.
type Hunk struct {
	// At is how many rules the chain has before those that are replaced, and Delete how many these are.
	At, Delete int
	Insert     []Rule
}

// IDs returns the ids of the chain's rules after the edit, given those before it.
func (e Edit) IDs(have []string) []string {
	if len(have) != e.Rules {
		return nil // the chain was read again meanwhile
	}
	var ids []string
	from := 0
	for _, h := range e.Hunks {
		ids = append(ids, have[from:h.At]...)
		for _, r := range h.Insert {
			ids = append(ids, r.ID())
		}
		from = h.At + h.Delete
	}
	return append(ids, have[from:]...)
}

// Count returns how many rules are deleted and inserted.
func (e Edit) Count() (deleted, inserted int) {
	for _, h := range e.Hunks {
		deleted += h.Delete
		inserted += len(h.Insert)
	}
	return deleted, inserted
}

// without is as Update.Without.
func (e Edit) without(drop func(Rule) bool) Edit {
	hunks := make([]Hunk, 0, len(e.Hunks))
	for _, h := range e.Hunks {
		if h.Insert = without(h.Insert, drop); h.Delete+len(h.Insert) > 0 {
			hunks = append(hunks, h)
		}
	}
	e.Hunks = hunks
	return e
}

// lines returns the lines of the edit. What comes last in the chain is changed first, so that it moves nothing that is
// still to be changed.
func (e Edit) lines() (lines []string) {
	add := func(words ...string) { lines = append(lines, strings.Join(words, " ")) }
	add("-A", e.Chain, "-j", e.Probe)
	add("-D", e.Chain, strconv.Itoa(e.Rules+1))
	for _, h := range slices.Backward(e.Hunks) {
		for n := h.At + h.Delete; n > h.At; n-- {
			add("-D", e.Chain, strconv.Itoa(n))
		}
		// In this order each rule comes before one that the kernel has: under nft, old programs cannot name one of the
		// same transaction.
		for i, r := range h.Insert {
			add("-I", e.Chain, strconv.Itoa(h.At+1+i), r.String())
		}
	}
	return lines
}

// edits returns the edits that change something, by chain, and the chains that they are probed with.
func (u Update) edits() (edits []Edit, probes []string) {
	for _, e := range u.Edits {
		if len(e.Hunks) > 0 {
			edits, probes = append(edits, e), append(probes, e.Probe)
		}
	}
	slices.SortFunc(edits, func(a, b Edit) int { return strings.Compare(a.Chain, b.Chain) })
	slices.Sort(probes)
	return edits, slices.Compact(probes)
}

// Editing decides when a chain is edited in place instead of rewritten. With the zero Editing it never is.
type Editing struct {
	// Above is the number of rules that the chain must exceed, before and after.
	Above int
	// Share is the part of them that may differ: one in so many.
	Share int
	// Probe is as in Edit.
	Probe string
}

// DefaultEditing returns what was measured to be best.
func DefaultEditing(probe string) Editing { return Editing{Above: 250, Share: 4, Probe: probe} }

// ChainChange is what makes a kernel's chain the desired one.
type ChainChange struct {
	// Replace is set if the chain has to be rewritten.
	Replace bool
	// Edit changes rules at their places, where that is enough; else it is nil.
	Edit *Edit
	// Insert are rules to put at the chain's head, where that is enough.
	Insert []Rule
	// Surplus is set if all that remains to be done is to remove rules.
	Surplus bool
}

// Lacking reports whether the kernel's chain lacks rules, or has some in another order.
func (ch ChainChange) Lacking() bool { return ch.Replace || ch.Edit != nil || len(ch.Insert) > 0 }

// Change adds what makes a kernel's chain the desired one.
func (u *Update) Change(desired Chain, ch ChainChange) {
	switch {
	case ch.Replace:
		u.Replace = append(u.Replace, desired)
	case ch.Edit != nil:
		u.Edits = append(u.Edits, *ch.Edit)
	case len(ch.Insert) > 0:
		if u.Insert == nil {
			u.Insert = map[string][]Rule{}
		}
		u.Insert[desired.Name] = ch.Insert
	}
}

// Since compares the chain with the rules that the kernel has, by their ids, in order. The order of Rules has no
// meaning.
func (c Chain) Since(have []string) ChainChange {
	have, same := c.cutTail(have)
	if !same {
		return ChainChange{Replace: true}
	}
	extra := map[string]bool{}
	for _, id := range have {
		if extra[id] {
			return ChainChange{Replace: true} // twice the same rule
		}
		extra[id] = true
	}
	var ch ChainChange
	for _, r := range c.Rules {
		if id := r.ID(); extra[id] {
			delete(extra, id)
		} else {
			ch.Insert = append(ch.Insert, r)
		}
	}
	ch.Surplus = len(extra) > 0
	return ch
}

// SinceInOrder is like Since, for a chain whose rules must be in order.
func (c Chain) SinceInOrder(have []string, editing Editing) ChainChange {
	all := len(have)
	have, same := c.cutTail(have)
	if !same {
		return ChainChange{Replace: true}
	}
	rules := sorted(c.Rules)
	want := Chain{Tail: rules}.IDs()
	switch {
	case slices.Equal(have, want):
		return ChainChange{}
	case editing.Share == 0, min(len(have), len(want)) <= editing.Above:
		return ChainChange{Replace: true}
	}
	kept := common(have, want)
	if longer := max(len(have), len(want)); (longer-len(kept))*editing.Share > longer {
		return ChainChange{Replace: true}
	}
	e := &Edit{Chain: c.Name, Rules: all, Probe: editing.Probe}
	var from pair
	for _, k := range append(kept, pair{len(have), len(want)}) {
		if k != from {
			e.Hunks = append(e.Hunks, Hunk{At: from.have, Delete: k.have - from.have, Insert: rules[from.want:k.want]})
		}
		from = pair{k.have + 1, k.want + 1}
	}
	return ChainChange{Edit: e}
}

// cutTail returns what the kernel has before the tail, by ids, and whether it has the same tail.
func (c Chain) cutTail(have []string) (rest []string, same bool) {
	n := len(have) - len(c.Tail)
	if n < 0 {
		return nil, false
	}
	return have[:n], slices.EqualFunc(have[n:], c.Tail, func(id string, r Rule) bool { return id == r.ID() })
}

// pair is an index into the existing rules and one into the desired rules.
type pair struct{ have, want int }

// common returns the pairs of a longest common subsequence of have and want, in order. Of an id that occurs several
// times, only the last place in have is considered: no rule occurs twice unless another process added it. So each id of
// want has at most one place in have, and the problem is a longest increasing subsequence.
func common(have, want []string) []pair {
	places := make(map[string]int, len(have))
	for i, id := range have {
		places[id] = i
	}
	var (
		pairs []pair
		// before[i] is the pair that precedes pair i in the longest sequence that ends with it, or -1.
		before []int
		// ends[n] is, of the pairs with which a sequence of n+1 ends, the one with the lowest place.
		ends []int
	)
	for i, id := range want {
		place, there := places[id]
		if !there {
			continue
		}
		n, _ := slices.BinarySearchFunc(ends, place,
			func(end, place int) int { return cmp.Compare(pairs[end].have, place) })
		previous := -1
		if n > 0 {
			previous = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, len(pairs))
		} else {
			ends[n] = len(pairs)
		}
		pairs, before = append(pairs, pair{place, i}), append(before, previous)
	}
	kept := make([]pair, len(ends), len(ends)+1)
	if len(ends) > 0 {
		for n, i := len(ends)-1, ends[len(ends)-1]; n >= 0; n, i = n-1, before[i] {
			kept[n] = pairs[i]
		}
	}
	return kept
}
