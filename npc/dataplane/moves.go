package dataplane

import (
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/dataplane/order"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// memberMoves are the members that a plan moves from one chain to another. A pod must be found in one of them at any moment, with
// its rules: so it is added to sets from the rules up to the root, and deleted from them from the root down to the rules. The zero
// memberMoves has none, as most plans have.
type memberMoves struct {
	// late are the entries that are added to a set of the dispatch tree only after the rules are written.
	late map[lateEntry]struct{}
	// entered and left are the chains that members come to and leave.
	entered, left map[*Chain]struct{}
}

type lateEntry struct {
	ipset.Entry
	traffic.Direction
}

// record puts a key into a map, which it makes if need be.
func record[K comparable](in *map[K]struct{}, key K) {
	if *in == nil {
		*in = map[K]struct{}{}
	}
	(*in)[key] = struct{}{}
}

// split divides what is added to a set into what comes before the rules and what comes after them.
func (mv *memberMoves) split(s *Set, add []ipset.Entry) (before, after []ipset.Entry) {
	if s.target == nil {
		return add, nil
	}
	unready := false
	if len(add) > 0 {
		record(&mv.entered, s.target.chain)
		unready = s.target.chain.unready()
	}
	for _, e := range add {
		key := lateEntry{e, s.target.direction}
		if _, later := mv.late[key]; !unready && !later {
			before = append(before, e)
			continue
		}
		record(&mv.late, key)
		after = append(after, e)
	}
	return before, after
}

// leave records that some members leave the chain that a set leads to, and returns the step in which they do.
func (mv *memberMoves) leave(s *Set, tx *Transaction, some bool) *[]ipset.Op {
	if s.target == nil {
		return &tx.DeleteAndDestroy
	}
	if some {
		record(&mv.left, s.target.chain)
	}
	return &tx.DeleteDispatch
}

// flush empties a set that is not wanted, at once.
func (mv *memberMoves) flush(s *Set, tx *Transaction) {
	if s.members.Empty() {
		return
	}
	step := mv.leave(s, tx, true)
	*step = append(*step, ipset.Op{Kind: ipset.Flush, Set: s.Set})
}

// needs reports whether a chain keeps rules that it is to have no more, because members leave it that they are still for. Of rules
// that were loaded it is not known whom else they let in: nobody new may meet them.
func (mv *memberMoves) needs(c *Chain) bool {
	_, entered := mv.entered[c]
	_, left := mv.left[c]
	return left && (!c.loaded || !entered)
}

// none reports whether nothing is moved, so that no old dispatch is needed.
func (mv *memberMoves) none() bool { return len(mv.late)+len(mv.left) == 0 }

// changeOf returns a change of a set that does nothing yet.
func changeOf(s *Set) *memberChange {
	is := s.order
	is.Peers = s.asked && !s.fixed && (s.Type == ipset.HashIP || s.Type == ipset.HashIPPort)
	is.Height = s.target.distance()
	return &memberChange{Change: order.Change[*Set]{Of: s, Set: is}}
}

// flushOf returns the change that empties a set.
func flushOf(s *Set) *memberChange {
	c := changeOf(s)
	c.flush = true
	for e, st := range s.States() {
		if st.Exists {
			c.Flushed = append(c.Flushed, e)
		}
	}
	return c
}

// orderTiers orders the changes, if sets of cluster network policies are among them, and takes what must come first or last out of them.
func (p *planner) orderTiers() (ordered bool) {
	changes := make([]*order.Change[*Set], 0, len(p.changes))
	for _, c := range p.changes {
		changes = append(changes, &c.Change)
	}
	plan, ordered := order.Of(changes, p.sets.held)
	for _, c := range p.changes {
		if ordered && c.create {
			p.tx.Close, c.create = append(p.tx.Close, ipset.Op{Kind: ipset.Create, Set: c.Of.Set}), false
		}
	}
	for _, op := range plan.Close {
		p.tx.Close = appendMembers(p.tx.Close, op.Kind, op.Of, op.Entries)
	}
	for _, op := range plan.Open {
		p.tx.Open = appendMembers(p.tx.Open, op.Kind, op.Of, op.Entries)
	}
	if ordered {
		slices.SortStableFunc(p.changes, func(a, b *memberChange) int { return order.Compare(a.Set, b.Set) })
	}
	return ordered
}

// held returns what the order of changes depends on beside them.
func (ss *Sets) held() (k order.Kernel[*Set]) {
	for _, s := range ss.byName {
		if s.exists && (s.order.Judges == order.Tail || s.order.Judges == order.BaselineList) {
			k.Tails = append(k.Tails, heldSet(s))
		}
		if s.exists && s.wanted && s.order.Judges == order.ListOf(policy.Admin) && s.target.chain.lacksRules() {
			k.Unwritten = append(k.Unwritten, heldSet(s))
		}
	}
	if s := ss.closed; s != nil && s.wanted {
		k.Closed = new(heldSet(s))
	}
	return k
}

// heldSet returns what the order depends on of a set.
func heldSet(s *Set) order.HeldSet[*Set] {
	return order.HeldSet[*Set]{Of: s, Direction: s.order.Direction, State: func(e ipset.Entry) (exists, wanted bool) {
		st := s.State(e)
		return st.Exists, st.Wanted
	}}
}
