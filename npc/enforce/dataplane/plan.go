package dataplane

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/members"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/steps"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Known is how much is known of what a family has in the kernel, and so how much of it may be planned.
type Known uint8

const (
	// AllKnown is what it is once sets and chains were loaded.
	AllKnown Known = iota
	// SetsKnown means that it is not known which chains there are: what rules may need is kept.
	SetsKnown
	// NothingKnown means that nothing may be planned.
	NothingKnown
)

// Options are what a plan depends on besides the table.
type Options struct {
	Known Known
	// CollectGarbage removes what does no harm and costs time to remove: chains and sets without a use, and the
	// dispatch to them.
	CollectGarbage bool
	// NoPolicies is set while there is no policy, so that nothing has to wait for connections to be deleted.
	NoPolicies bool
	// Mismatched is what ResolveNames found in the way, which the transaction names first.
	Mismatched []string
	// Recorded is written to the set of the local pods first, for a next process that finds half of the changes.
	Recorded []ipset.Element
	// Editing decides which chains of ordered rules are edited in place.
	Editing iptables.Editing
}

// planner makes one transaction. It changes no set and no chain.
type planner struct {
	Options
	sets   *Sets
	chains *Chains
	// hold is what stays because input is missing; nil if nothing is.
	hold *hold
	// postponed are the namespaces whose rules are left as they are.
	postponed map[string]bool
	tx        *Transaction
	// moves are the members that are moved from one chain to another.
	moves steps.Moves[*Chain]
	// leading is set if local pods leave the rules that evaluate them only after the rules are written, so that the
	// jumps there stay until then.
	leading bool
	// changes are what is to be done to the sets that were marked.
	changes []*memberChange
	// replaced are the mismatched sets that the transaction destroys first.
	replaced map[*Set]struct{}
	// unwanted are the sets that may be destroyed.
	unwanted []*Set
	// recommented are the entries of local pods that get other comments, once all else that is theirs is written.
	recommented []ipset.Entry
	// urgent are addresses that something is to be opened to, whose connections therefore have to be deleted now.
	urgent map[netip.Addr]struct{}
}

// Plan returns the transaction that makes the kernel what is desired. It changes nothing: Commit takes over what the
// kernel took of it. ResolveNames is to be called before.
func (t *Table) Plan(o Options) Transaction {
	tx := newTransaction(t.family)
	if o.Known == NothingKnown {
		return tx
	}
	tx.Mismatched = o.Mismatched
	p := &planner{Options: o, sets: t.Sets, chains: t.Chains, hold: t.hold, postponed: t.postponed, tx: &tx,
		urgent: map[netip.Addr]struct{}{}}
	if len(o.Recorded) > 0 && t.Local.mismatch() == "" {
		tx.DeleteStale = []ipset.Op{{Kind: ipset.Add, Set: t.Local.Set, Elements: o.Recorded}}
	}
	p.planSets()
	if p.Known == AllKnown {
		p.planChains()
	}
	tx.FlushConntrack = p.sets.flows.Due(p.urgent)
	return tx
}

// planFailClosedSets adds the members that sets lack that the kernel has.
func planFailClosedSets(failClosedSets []*Set) (ops []ipset.Op) {
	for _, s := range failClosedSets {
		if !s.exists || s.mismatch() != "" {
			continue
		}
		ops = appendMembers(ops, ipset.Add, s, s.members.Lacking())
	}
	return ops
}

func (p *planner) planSets() {
	marked := p.sets.toPlan()
	if len(marked) == 0 {
		p.collectSets()
		return
	}
	if p.Known == AllKnown {
		p.replaceMismatched(marked)
	}
	for _, s := range marked {
		switch {
		case s.rejected != "":
			p.tx.done(s)
		case !s.wanted && p.Known != AllKnown, s.mismatch() != "" && !p.replaces(s):
			// until it is known what rules may need
		case !s.wanted && s.keeps():
			p.changes = append(p.changes, p.sortMembers(s))
		case !s.wanted:
			if !s.members.Empty() { // most were emptied before, and wait to be destroyed
				p.changes = append(p.changes, flushOf(s))
			}
			p.unwanted = append(p.unwanted, s)
		default:
			c := p.sortMembers(s)
			c.create = !s.exists || p.replaces(s)
			p.changes = append(p.changes, c)
		}
	}
	p.tx.planned.unasked = p.unwanted
	plan, ordered := p.orderTiers()
	p.planMembers(p.changes)
	slices.Reverse(p.tx.DeleteDispatch)
	if ordered {
		slices.Reverse(p.tx.DeleteAndDestroy) // from the last rule to the first
		p.planTiers(plan)
	}
	p.tx.Open = appendMembers(p.tx.Open, ipset.Add, p.sets.local, p.recommented)
	p.collectSets()
}

// collectSets destroys sets without a use, if garbage is collected.
func (p *planner) collectSets() {
	if p.collects() {
		p.planDestroys()
	}
}

// collects reports whether what has no use is removed: not while pods may still be led there.
func (p *planner) collects() bool { return p.CollectGarbage && p.moves.None() && !p.leading }

// replaceMismatched destroys sets that have the names of desired ones, cannot be these and are not in use.
func (p *planner) replaceMismatched(marked []*Set) {
	p.replaced = map[*Set]struct{}{}
	for _, s := range marked {
		why := s.mismatch()
		if why == "" || !s.replaceable() {
			continue
		}
		p.replaced[s] = struct{}{}
		p.tx.Mismatched = append(p.tx.Mismatched, s.describeMismatch(why))
		p.tx.DeleteStale = append(p.tx.DeleteStale, ipset.Op{Kind: ipset.Destroy, Set: s.found.Set})
	}
}

// replaces reports whether the transaction destroys a mismatched set first.
func (p *planner) replaces(s *Set) bool {
	_, is := p.replaced[s]
	return is
}

// planMembers creates sets and brings their members up to date. Lists come last, because they name other sets.
func (p *planner) planMembers(changes []*memberChange) {
	var lists []ipset.Op
	for _, c := range changes {
		switch {
		case c.flush:
			p.flush(c)
		case c.Of.Type == ipset.ListSet && c.Of.wanted:
			p.planSet(c, &lists)
		default:
			p.planSet(c, &p.tx.AddMembers)
		}
	}
	p.tx.AddMembers = append(p.tx.AddMembers, lists...)
}

// planSet creates a set, if need be, and brings its members up to date.
func (p *planner) planSet(c *memberChange, grow *[]ipset.Op) {
	if c.create {
		*grow = append(*grow, ipset.Op{Kind: ipset.Create, Set: c.Of.Set, Elements: c.Of.initial()})
	}
	if c.Of.wanted && !c.Of.asked {
		p.tx.planned.asked = append(p.tx.planned.asked, c.Of)
	}
	add, late := p.enter(c.Of, slices.Concat(c.Add, c.Recommented))
	*grow = appendMembers(*grow, ipset.Add, c.Of, add)
	p.tx.AddAfterRestore = appendMembers(p.tx.AddAfterRestore, ipset.Add, c.Of, late)
	p.tx.DeleteStale = appendMembers(p.tx.DeleteStale, ipset.Delete, c.Of, c.Stale)
	leave := p.leave(c.Of, len(c.Remove) > 0)
	*leave = appendMembers(*leave, ipset.Delete, c.Of, c.Remove)
	if !c.kept {
		p.tx.done(c.Of)
	}
}

// sortMembers finds out what is to be done to the members of a set that differ.
func (p *planner) sortMembers(s *Set) *memberChange {
	m := changeOf(s)
	// While chains are not known, it is not known whether old rules stand where members are sent, nor whether they
	// would be sent elsewhere.
	closed := s.target != nil && (p.Known != AllKnown || p.postpones(s.target.chain))
	differences := s.Differences()
	if p.replaces(s) {
		differences = s.members.FromNothing()
	}
	for e, st := range differences {
		switch {
		case p.sets.lacks(e):
			p.sets.family.incomplete[s.key] = p.sets.byName[e.Set].rejected
		case !st.Wanted && s.kept[e], st.Wanted && p.hold.bars(s, e):
		case p.keepsBack(s, e, st), st.Wanted && closed:
			m.kept = true
		case st.Wanted && st.Exists && s == p.sets.local:
			p.recommented = append(p.recommented, e)
		case st.Wanted && st.Exists:
			m.Recommented = append(m.Recommented, e)
		case st.Wanted:
			m.Add = append(m.Add, e)
		case s.order.Role.Effect() != policy.Accept && p.sets.flows.Has(e.Prefix.Addr()):
			// To deny no more, or to meet later rules of the Admin tier, may open what neither pod's rules allow.
			m.kept = true
			p.urgent[e.Prefix.Addr()] = struct{}{}
		case p.sets.flows.Has(e.Prefix.Addr()) && s != p.sets.local:
			// As a local pod that nothing allows, the address is closed until it is its new pod's.
			m.Stale = append(m.Stale, e)
		case closed && p.sets.local.State(e).Wanted:
			m.kept = true
		default:
			m.Remove = append(m.Remove, e)
		}
	}
	return m
}

// appendMembers appends an operation on members of a set, if there are any.
func appendMembers(ops []ipset.Op, kind ipset.OpKind, s *Set, entries []ipset.Entry) []ipset.Op {
	if len(entries) == 0 {
		return ops
	}
	return append(ops, ipset.Op{Kind: kind, Set: s.Set, Elements: s.members.Elements(entries)})
}

// keepsBack reports whether an entry stays as it is in the kernel until the connections of the address's former pod are
// deleted. What shows, after a restart, whose the address was stays too.
func (p *planner) keepsBack(s *Set, e ipset.Entry, st members.State) bool {
	a := e.Prefix.Addr()
	if !p.sets.flows.Has(a) || p.NoPolicies || s.Type == ipset.HashNet {
		return false
	}
	if s == p.sets.local {
		return st.Exists
	}
	if !st.Wanted || st.Exists || s.order.Role.Action == policy.Deny {
		return false
	}
	p.urgent[a] = struct{}{}
	return true
}

// planDestroys destroys sets that are not wanted, lists before their members.
func (p *planner) planDestroys() {
	var lists, others []ipset.Op
	for _, s := range p.unwanted {
		if !s.destroyNext {
			// The rules that refer to it may go only now, and the kernel takes its time.
			p.tx.planned.destroyNext = append(p.tx.planned.destroyNext, s)
			continue
		}
		op := ipset.Op{Kind: ipset.Destroy, Set: s.Set}
		if s.Type == ipset.ListSet {
			lists = append(lists, op)
		} else {
			others = append(others, op)
		}
	}
	p.tx.DeleteAndDestroy = slices.Concat(p.tx.DeleteAndDestroy, lists, others)
}

func (p *planner) planChains() {
	garbage := p.collects()
	for _, c := range p.chains.toPlan() {
		switch {
		case c.wanted:
			p.planChain(c, garbage)
		case c.keeps() && c.tail == nil:
			p.tx.reconcileChain(c)
		case c.keeps():
			p.planChain(c, garbage) // what an object wanted of it goes
		case garbage || strings.HasPrefix(c.name, naming.LayoutPrefix):
			p.tx.Rules.Delete = append(p.tx.Rules.Delete, c.name)
		}
	}
	for _, j := range p.chains.jumps {
		if j.Missing() || j.Surplus() && p.hold == nil {
			p.tx.Rules.Jumps = append(p.tx.Rules.Jumps, j.Update())
		}
	}
}

// postpones reports whether a chain's rules are left as they are for now.
func (p *planner) postpones(c *Chain) bool { return p.postponed[c.namespace] }

func (p *planner) planChain(c *Chain, garbage bool) {
	w := c.desired()
	if p.postpones(c) {
		if !c.kernel.Exists { // other chains jump to it
			w.Rules = nil
			p.tx.Write(c.namespace, w, iptables.ChainChange{Replace: true})
		}
		return
	}
	ch := c.kernel.Change(w, c.ordered, p.Editing)
	purge := ch.Surplus && (garbage || !c.lazy)
	if purge && !ch.Replace && (p.leading || p.moves.Needs(c, c.kernel.Loaded)) {
		purge, p.tx.planned.unfinished = false, true
	}
	if ch.Replace = ch.Replace || purge; ch.Lacking() {
		p.tx.Write(c.namespace, w, ch)
	}
	if !ch.Surplus || ch.Replace {
		p.tx.reconcileChain(c)
	}
}
