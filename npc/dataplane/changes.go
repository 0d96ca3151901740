package dataplane

import (
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/dataplane/order"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// memberChange is what is to be done to one set, Of.
type memberChange struct {
	order.Change[*Set]
	// kept is set if some member has to wait for a later plan.
	kept bool
	// create is set if the set has to be created first, and flush if all its members go.
	create, flush bool
}

// changeOf returns a change of a set that does nothing yet.
func changeOf(s *Set) *memberChange {
	is := s.order
	is.Peers = s.asked && !s.fixed && (s.Type == ipset.HashIP || s.Type == ipset.HashIPPort)
	is.Height = heightOf(s)
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

// enter divides what is added to a set into what comes before the rules and what comes after them.
func (p *planner) enter(s *Set, add []ipset.Entry) (before, after []ipset.Entry) {
	if s.target == nil || len(add) == 0 {
		return add, nil
	}
	return p.moves.Enter(s.target.chain, s.target.direction, s.target.chain.unready(), add)
}

// leave records that some members leave the chain that a set leads to, and returns the step in which they do.
func (p *planner) leave(s *Set, some bool) *[]ipset.Op {
	if s.target == nil && s.stage == nil {
		return &p.tx.DeleteAndDestroy
	}
	if some && s.target != nil {
		p.moves.Leave(s.target.chain)
	}
	return &p.tx.DeleteDispatch
}

// flush empties a set that is not wanted, at once.
func (p *planner) flush(s *Set) {
	step := p.leave(s, true)
	*step = append(*step, ipset.Op{Kind: ipset.Flush, Set: s.Set})
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
