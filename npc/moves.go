package npc

import "github.com/weave-npc/weave-npc/ipset"

// moves are what a plan moves from one chain to another. A pod must be found in one of them at any moment, with its rules: so it is put into sets
// from the rules to the root, and taken out of them from the root to the rules.
type moves struct {
	// admitted are the entries that come to a chain of a way only when its rules are there; who is sent there follows.
	admitted map[admission]struct{}
	// entered and left are the chains that members come to and leave.
	entered, left map[*chain]struct{}
}

type admission struct {
	ipset.Entry
	Direction
}

func newMoves() *moves {
	return &moves{admitted: map[admission]struct{}{}, entered: map[*chain]struct{}{}, left: map[*chain]struct{}{}}
}

// admit divides what is added to a set into what comes before the rules and what comes after them.
func (mv *moves) admit(s *set, add []ipset.Entry) (before, after []ipset.Entry) {
	if s.leads == nil {
		return add, nil
	}
	unready := false
	if len(add) > 0 {
		mv.entered[s.leads.to], unready = struct{}{}, s.leads.to.unready()
	}
	for _, e := range add {
		key := admission{e, s.leads.direction}
		if _, later := mv.admitted[key]; !unready && !later {
			before = append(before, e)
			continue
		}
		mv.admitted[key] = struct{}{}
		after = append(after, e)
	}
	return before, after
}

// leave takes note that some members leave the chain that a set leads to, and returns the step in which they do.
func (mv *moves) leave(s *set, tx *Transaction, members int) *[]ipset.Op {
	if s.leads == nil {
		return &tx.Shrink
	}
	if members > 0 {
		mv.left[s.leads.to] = struct{}{}
	}
	return &tx.Leave
}

// empty empties a set that is not wanted, at once.
func (mv *moves) empty(s *set, tx *Transaction) {
	if len(s.entries) == 0 {
		return
	}
	step := mv.leave(s, tx, len(s.entries))
	*step = append(*step, ipset.Op{Kind: ipset.Flush, Set: s.Set})
	clear(s.entries)
	clear(s.dirty)
}

// needs says whether a chain keeps rules that it is to have no more, because members leave it that they are still for. Of rules that were found it is
// not known whom else they let in: nobody new may meet them.
func (mv *moves) needs(c *chain) bool {
	_, entered := mv.entered[c]
	_, left := mv.left[c]
	return left && (!c.adopted || !entered)
}

// none says that nothing is moved, so that no old way is needed.
func (mv *moves) none() bool { return len(mv.admitted)+len(mv.left) == 0 }
