package npc

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/queue"
)

// Extent is how much of a family may be planned.
type Extent uint8

const (
	// Everything is known of the kernel.
	Everything Extent = iota
	// SetsOnly says that it is not known which chains there are: what rules may need is kept.
	SetsOnly
	// Nothing is known.
	Nothing
)

// PlanStart returns the transactions that are carried out before all objects are known. They take nothing away: where weave-npc's chains
// stand, unknown addresses of the node's range are closed. With boot, on a node without pods and without such chains, the base is made,
// closed.
func (m *Model) PlanStart(boot bool, extent [len(families)]Extent) [len(families)]Transaction {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setGates()
	var txs [len(families)]Transaction
	for f, t := range m.tables {
		txs[f] = Transaction{Family: t.family}
		if extent[f] == Nothing {
			continue
		}
		if boot && extent[f] == Everything && !t.standing() {
			txs[f] = t.plan(false, Everything)
			continue
		}
		for _, s := range m.gates.sets[f] {
			t.planGrowth(s, &txs[f])
		}
	}
	return txs
}

// standing says whether the kernel has a chain of ours. Sets alone do nothing: who made them did not come as far as the chains.
func (t *table) standing() bool {
	for _, c := range t.chains {
		if c.exists {
			return true
		}
	}
	return false
}

// planGrowth adds to a set that the kernel has what is wanted and missing.
func (t *table) planGrowth(s *set, tx *Transaction) {
	if !s.exists || s.misfit() != "" {
		return
	}
	var add []ipset.Entry
	for e := range s.dirty {
		if s.entries[e].wanted {
			add = append(add, e)
		}
	}
	if len(add) == 0 {
		return
	}
	tx.Grow = append(tx.Grow, ipset.Op{Kind: ipset.Add, Set: s.Set, Elements: s.elements(add)})
	for _, e := range add {
		s.applied(e)
	}
}

// Plan returns each family's transaction, as far as the family is known, after all changes up to now. The model takes them for done: if one
// fails, LoadSets and LoadChains must be called with what the kernel then holds. With tidy, a transaction also removes what does no
// harm and costs time to remove.
func (m *Model) Plan(tidy bool, extent [len(families)]Extent) [len(families)]Transaction {
	m.mu.Lock()
	defer m.mu.Unlock()
	for f, t := range m.tables {
		extent[f] = m.holdFound(t, extent[f])
	}
	m.setGates()
	if m.batch != queue.None {
		m.planned = m.batch
	}
	m.batch, m.weight, m.inFlight = queue.None, 0, m.synced
	if m.plannedAt.IsZero() {
		m.plannedAt = m.changedAt
	}
	m.changedAt = time.Time{}
	var txs [len(families)]Transaction
	for f, t := range m.tables {
		t.unpoliced = m.policyCount == 0 && !m.LegacyNetpol
		txs[f] = t.plan(tidy, extent[f])
	}
	return txs
}

// holdFound sees to it that a family keeps what was found, if input is missing. It returns how much may be planned:
// nothing until it is known what there is to keep.
func (m *Model) holdFound(t *table, extent Extent) Extent {
	defer t.forgetTexts(m.missing == NothingMissing)
	if m.missing == NothingMissing || t.hold != nil {
		return extent
	}
	if extent != Everything || t.foundLayout != "" && t.foundLayout != naming.Layout {
		return Nothing
	}
	t.hold = newHold(t, m.claims.Owner, m.defaultAllow[t.family])
	return extent
}

// Keep takes note that a set that was to be destroyed is still there.
func (m *Model) Keep(f Family, s ipset.Set) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tables[f]
	if have := t.sets[s.Name]; have != nil {
		have.exists, have.found = true, ipset.Header{Set: s}
		return
	}
	k := &set{Set: s, key: s.Name, table: t, exists: true, found: ipset.Header{Set: s}, entries: map[ipset.Entry]entryState{}, dirty: map[ipset.Entry]struct{}{}}
	t.sets[s.Name] = k
	t.touch(k)
}

// Unadmit takes note that members were not added that a plan took for added.
func (m *Model) Unadmit(f Family, ops []ipset.Op) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, op := range ops {
		s := m.tables[f].sets[op.Set.Name]
		if s == nil {
			continue
		}
		for _, e := range op.Elements {
			st := s.entries[e.Entry]
			st.have, st.exists = ipset.Attr{}, false
			s.note(e.Entry, st)
		}
	}
}

// plan is the transaction that makes the kernel what the model wants. It takes the transaction for
// applied: should it fail, the table has to adopt what the kernel then holds. Without tidy, what
// does no harm is left for later: unused chains and sets, and the way to them.
func (t *table) plan(tidy bool, extent Extent) Transaction {
	tx := Transaction{Family: t.family}
	t.unfinished = false
	if extent == Nothing {
		return tx
	}
	mv := t.planSets(&tx, tidy, extent)
	if extent == Everything {
		t.planChains(&tx, tidy && mv.none(), mv)
	}
	tx.Forget = t.flows.Take()
	return tx
}

func (t *table) planSets(tx *Transaction, tidy bool, extent Extent) *moves {
	if extent == Everything {
		if tidy {
			t.moveBack()
		}
		t.replaceMisfits(tx)
	}
	mv := newMoves()
	var lists []ipset.Op
	var unwanted []*set
	for _, s := range t.orderedDirty() {
		s.condemned = s.condemned && !s.wanted
		switch {
		case s.refused != "":
			delete(t.dirtySets, s)
			continue
		case !s.wanted && extent != Everything, s.misfit() != "":
			continue // until it is known what rules may need
		case !s.wanted && t.hold.keepsSet(s):
			t.planMembers(s, tx, &tx.Grow, mv, extent)
			continue
		case !s.wanted:
			mv.empty(s, tx)
			unwanted = append(unwanted, s)
			continue
		}
		grow := &tx.Grow
		if s.Type == ipset.ListSet {
			grow = &lists
		}
		if !s.exists {
			*grow = append(*grow, ipset.Op{Kind: ipset.Create, Set: s.Set})
			s.exists, s.found = true, ipset.Header{Set: s.Set}
		}
		t.planMembers(s, tx, grow, mv, extent)
	}
	tx.Grow = append(tx.Grow, lists...)
	slices.Reverse(tx.Leave)
	if tidy && mv.none() {
		t.planDrops(tx, unwanted)
	}
	return mv
}

// planMembers brings the members of a set that is wanted up to date.
func (t *table) planMembers(s *set, tx *Transaction, grow *[]ipset.Op, mv *moves, extent Extent) {
	// Whether old rules stand where its members are sent is not known while chains are not, and whether they would be sent elsewhere.
	closed, held := s.leads != nil && (extent != Everything || t.postpones(s.leads.to)), false
	var add, revoke, remove []ipset.Entry
	for e := range s.dirty {
		changed := t.flows.Has(e.Prefix.Addr())
		switch {
		case t.refuses(e), !s.entries[e].wanted && t.hold.keeps(s, e), s.entries[e].wanted && t.hold.bars(s, e):
		case t.keepsBack(s, e):
			held = true
		case s.entries[e].wanted && closed:
			held = true
		case s.entries[e].wanted:
			add = append(add, e)
		case changed && s != t.local:
			// As a local pod that nothing allows, the address is closed until it is its new pod's.
			revoke = append(revoke, e)
		case closed && t.local.entries[e].wanted:
			held = true
		default:
			remove = append(remove, e)
		}
	}
	add, admit := mv.admit(s, add)
	ops := func(to *[]ipset.Op, kind ipset.OpKind, entries []ipset.Entry) {
		if len(entries) > 0 {
			*to = append(*to, ipset.Op{Kind: kind, Set: s.Set, Elements: s.elements(entries)})
		}
	}
	ops(grow, ipset.Add, add)
	ops(&tx.Admit, ipset.Add, admit)
	ops(&tx.Revoke, ipset.Delete, revoke)
	ops(mv.leave(s, tx, len(remove)), ipset.Delete, remove)
	for _, entries := range [][]ipset.Entry{add, admit, revoke, remove} {
		for _, e := range entries {
			s.applied(e)
		}
	}
	if !held {
		delete(t.dirtySets, s)
	}
}

// planDrops destroys sets that are not wanted, lists before their members.
func (t *table) planDrops(tx *Transaction, unwanted []*set) {
	var lists, drop []ipset.Op
	for _, s := range unwanted {
		if !s.condemned {
			s.condemned = true // the rules that refer to it may go only now, and the kernel takes its time
			continue
		}
		to := &drop
		if s.Type == ipset.ListSet {
			to = &lists
		}
		*to = append(*to, ipset.Op{Kind: ipset.Destroy, Set: s.Set})
		t.remove(s)
	}
	tx.Shrink = slices.Concat(tx.Shrink, lists, drop)
}

// orderedDirty are the sets to look at: those that lead nowhere, those that lead to rules, those that lead there, and so on.
func (t *table) orderedDirty() []*set {
	out := make([]*set, 0, len(t.dirtySets))
	for s := range t.dirtySets {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *set) int {
		return cmp.Or(cmp.Compare(a.length(), b.length()), strings.Compare(a.Name, b.Name))
	})
	return out
}

func (t *table) planChains(tx *Transaction, tidy bool, mv *moves) {
	names := make([]string, 0, len(t.dirtyChains))
	for c := range t.dirtyChains {
		names = append(names, c.name)
	}
	slices.Sort(names)
	for _, name := range names {
		c := t.chains[name]
		switch {
		case !c.wanted && t.hold.keepsChain(c):
			if c.tail == nil {
				delete(t.dirtyChains, c)
				continue
			}
			t.planChain(c, tx, tidy, mv) // what an object wanted of it goes
		case !c.wanted && (tidy || strings.HasPrefix(name, naming.LayoutPrefix)):
			tx.Rules.Delete = append(tx.Rules.Delete, name)
			delete(t.chains, name)
			delete(t.dirtyChains, c)
		case c.wanted:
			t.planChain(c, tx, tidy, mv)
		}
	}
	if t.jump != nil && t.jumpMissing {
		tx.Rules.Jumps = append(tx.Rules.Jumps, iptables.Jump{Chain: naming.HookChain, Rule: *t.jump, Stale: t.jumpStale})
		t.jumpMissing, t.jumpStale = false, nil
	}
}

func (t *table) planChain(c *chain, tx *Transaction, tidy bool, mv *moves) {
	w := c.want()
	if t.postpones(c) {
		if !c.exists { // the way leads to it
			w.Rules = nil
			tx.replace(c, w)
		}
		return
	}
	ch := c.diff(w)
	purge := ch.surplus && (tidy || !c.lazy)
	if purge && !ch.replace && mv.needs(c) {
		purge, t.unfinished = false, true
	}
	switch {
	case ch.replace || purge:
		tx.replace(c, w)
	case len(ch.insert) > 0:
		if tx.Rules.Insert == nil {
			tx.Rules.Insert = map[string][]iptables.Rule{}
		}
		tx.Rules.Insert[c.name] = ch.insert
		tx.of(c)
		c.inserted(ch.insert)
	}
	if !ch.surplus || purge || ch.replace {
		delete(t.dirtyChains, c)
	}
}

// replace writes a chain anew.
func (tx *Transaction) replace(c *chain, w iptables.Chain) {
	tx.Rules.Replace = append(tx.Rules.Replace, w)
	tx.of(c)
	c.applied(w)
}

// of remembers whose rules a chain has that is written.
func (tx *Transaction) of(c *chain) {
	if c.namespace == "" {
		return
	}
	if tx.Namespaces == nil {
		tx.Namespaces = map[string]string{}
	}
	tx.Namespaces[c.name] = c.namespace
}

// postpones reports whether a chain's rules are left as they are for now.
func (t *table) postpones(c *chain) bool { return t.postponed[c.namespace] }

// Postpone sets whether plans leave the rules of a namespace as they are in the kernel, and its pods where they are.
func (m *Model) Postpone(f Family, namespace string, postpone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.tables[f]; postpone {
		t.postponed[namespace] = true
	} else {
		delete(t.postponed, namespace)
	}
}

// untidy says whether there is something that a plan left for later.
func (t *table) untidy() bool {
	for s := range t.dirtySets {
		if !s.wanted {
			return true
		}
	}
	return len(t.moved) > 0 || len(t.dirtyChains) > 0
}
