package dataplane

import (
	"cmp"
	"iter"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/members"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/order"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// memberChange is what is to be done to one set, Of.
type memberChange struct {
	order.SetChange[*Set]
	// kept is set if some member has to wait for a later plan.
	kept bool
	// create is set if the set has to be created first, and flush if all its members go.
	create, flush bool
}

// changeOf returns a change of a set that does nothing yet.
func changeOf(s *Set) *memberChange {
	is := s.order
	is.Peers = s.asked && !s.fixed && s.Type != ipset.HashNet
	is.Height = heightOf(s)
	return &memberChange{SetChange: order.SetChange[*Set]{Of: s, Set: is}}
}

// flushOf returns the change that empties a set. Addresses that changed hands leave it first, if it leads somewhere.
func flushOf(s *Set) *memberChange {
	c := changeOf(s)
	c.flush = true
	for e, st := range s.States() {
		switch {
		case !st.Exists:
		case c.Height >= 0 && s.sets.flows.Has(e.Prefix.Addr()):
			c.Stale = append(c.Stale, e)
		default:
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

// leave records that some members leave the chain that a set dispatches to, and returns the step that removes them.
func (p *planner) leave(s *Set, some bool) *[]ipset.Op {
	if s.target == nil && s.stage == nil {
		return &p.tx.DeleteAndDestroy
	}
	if some && s.target != nil {
		p.moves.Leave(s.target.chain)
	}
	return &p.tx.DeleteDispatch
}

// flush empties a set that is not wanted, at once, of what is left of it.
func (p *planner) flush(c *memberChange) {
	p.tx.DeleteStale = appendMembers(p.tx.DeleteStale, ipset.Delete, c.Of, c.Stale)
	if len(c.Flushed) > 0 {
		step := p.leave(c.Of, true)
		*step = append(*step, ipset.Op{Kind: ipset.Flush, Set: c.Of.Set})
	}
}

// orderTiers orders the changes, if sets of cluster network policies are among them, and returns what it takes out of
// them.
func (p *planner) orderTiers() (plan order.Plan[*Set], ordered bool) {
	changes := make([]*order.SetChange[*Set], 0, len(p.changes))
	for _, c := range p.changes {
		changes = append(changes, &c.SetChange)
	}
	plan, ordered = order.Of(changes, p.sets.held)
	for _, c := range p.changes {
		if ordered && c.create {
			p.tx.Close = append(p.tx.Close, ipset.Op{Kind: ipset.Create, Set: c.Of.Set, Elements: c.Of.initial()})
			c.create = false
		}
	}
	if ordered {
		slices.SortStableFunc(p.changes, func(a, b *memberChange) int { return order.Compare(a.Set, b.Set) })
	}
	return plan, ordered
}

// planTiers plans what orderTiers took out of the changes; the rest is planned.
func (p *planner) planTiers(plan order.Plan[*Set]) {
	for to, ops := range map[*[]ipset.Op][]order.Op[*Set]{&p.tx.Close: plan.Close, &p.tx.AddAfterRestore: plan.Enter,
		&p.tx.DeleteDispatch: plan.Leave, &p.tx.Open: plan.Open} {
		for _, op := range ops {
			*to = appendMembers(*to, op.Kind, op.Of, op.Entries)
		}
	}
	p.leading = len(plan.Enter)+len(plan.Leave) > 0
}

// held returns what else the order of changes depends on.
func (ss *Sets) held() (k order.Kernel[*Set]) {
	k.Members = func(name string) iter.Seq2[ipset.Entry, members.State] {
		return cmp.Or(ss.byName[name], &Set{}).States() // another program may have put its own set into a list
	}
	for _, s := range ss.byName {
		if s.exists && (s.order.Evaluation == order.Tail || s.order.Evaluation == order.BaselineList) {
			k.Tails = append(k.Tails, order.HeldSet[*Set]{Of: s, Direction: s.order.Direction, State: s.State})
		}
		if s.exists && s.wanted && s.order.Evaluation == order.ListOf(policy.Admin) && s.target.chain.lacksRules() {
			k.Unwritten = append(k.Unwritten, order.HeldSet[*Set]{Of: s, Direction: s.order.Direction, State: s.State})
		}
	}
	if s := ss.closed; s != nil && s.wanted {
		k.Closed = new(order.HeldSet[*Set]{Of: s, Direction: s.order.Direction, State: s.State})
	}
	return k
}
