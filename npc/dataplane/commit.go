package dataplane

import (
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
)

// Result is what the kernel took of a transaction. What failed in a way that leaves open what the kernel holds is no part of it: then sets
// or chains have to be loaded again before the next plan.
type Result struct {
	// Asked is set if the flows of addresses that changed hands are being deleted.
	Asked bool
	// Written are the rules that were written.
	Written []iptables.Update
	// AllWritten is set if these are all rules. Otherwise nothing was done that needs them: of the steps after them, members were
	// deleted from sets that lead nowhere, and nothing else.
	AllWritten bool
	// RejectedSets are the sets that the kernel does not take, by name, and RejectedRules such rules, by id -> why.
	RejectedSets, RejectedRules map[string]string
	// InUse are the sets that could not be destroyed because something refers to them.
	InUse []ipset.Set
}

// Taken returns the result of a transaction of which the kernel took everything.
func (tx Transaction) Taken() Result {
	return Result{Asked: true, Written: []iptables.Update{tx.Rules}, AllWritten: true}
}

// Commit takes over what the kernel took of a transaction that Plan returned; the rest is planned again. It returns the names of rejected
// sets and the ids of rejected rules that cannot be left out: those of policies and those that only report can.
func (t *Table) Commit(tx Transaction, r Result) (sets, rules []string) {
	t.unfinished = tx.planned.unfinished
	t.commitOps(tx.DeleteStale, r)
	if r.Asked {
		t.Flows.Asked(tx.FlushConntrack)
	}
	t.commitOps(tx.AddMembers, r)
	for _, u := range r.Written {
		t.commitRules(u, r.RejectedRules)
	}
	if r.AllWritten {
		t.commitOps(tx.AddAfterRestore, r)
		t.commitOps(tx.DeleteDispatch, r)
		t.commitOps(tx.DeleteAndDestroy, r)
	} else {
		t.commitOps(tx.DeletedWithoutRules(), r)
	}
	sets, rules = t.rejectSets(r.RejectedSets), t.rejectRules(r.RejectedRules)
	if r.Asked && r.AllWritten && len(r.RejectedSets)+len(r.RejectedRules) == 0 {
		t.settle(tx.planned)
	}
	return sets, rules
}

// DeletedWithoutRules returns what is done of DeleteAndDestroy if not all rules were written. What the old rules allow by sets
// that are not wanted any more stays, and who is led to them; members that are not wanted go.
func (tx Transaction) DeletedWithoutRules() []ipset.Op {
	return slices.DeleteFunc(slices.Clone(tx.DeleteAndDestroy), func(op ipset.Op) bool { return op.Kind != ipset.Delete })
}

// settle takes sets and chains off the list of what the next plan looks at, unless they were marked again since the plan.
func (t *Table) settle(p planned) {
	for _, s := range p.sets {
		if s.touched <= p.changes {
			delete(t.dirtySets, s)
		}
	}
	for _, c := range p.chains {
		if c.touched <= p.changes {
			delete(t.dirtyChains, c)
		}
	}
	for _, s := range p.destroyNext {
		s.destroyNext = !s.wanted
	}
}

// commitOps takes over operations on sets. It finds the sets by their names, because one may have been dropped and wanted again since
// the plan.
func (t *Table) commitOps(ops []ipset.Op, r Result) {
	for _, op := range ops {
		if r.RejectedSets[op.Set.Name] != "" {
			continue
		}
		s := t.sets[op.Set.Name]
		if s == nil {
			if op.Kind != ipset.Create {
				continue
			}
			s = newSet(t, op.Set, op.Set.Name)
			t.sets[op.Set.Name] = s
			t.mark(s)
		}
		switch op.Kind {
		case ipset.Create:
			s.exists, s.found = true, ipset.Header{Set: op.Set}
		case ipset.Add:
			for _, el := range op.Elements {
				if r.RejectedSets[el.Set] == "" {
					s.have(el.Entry, el.Attr, true)
				}
			}
		case ipset.Delete:
			for _, el := range op.Elements {
				s.have(el.Entry, ipset.Attr{}, false)
			}
		case ipset.Flush:
			s.unload()
		case ipset.Destroy:
			t.commitDestroy(s, op, r)
		}
	}
}

func (t *Table) commitDestroy(s *Set, op ipset.Op, r Result) {
	switch inUse := slices.ContainsFunc(r.InUse, func(u ipset.Set) bool { return u.Name == op.Set.Name }); {
	case inUse:
		s.exists, s.found = true, ipset.Header{Set: op.Set}
	case s.wanted:
		s.exists, s.foreignLayout = false, ""
		s.unload()
	default:
		t.remove(s)
	}
}

// commitRules takes over rules that were written, without those that were rejected.
func (t *Table) commitRules(u iptables.Update, rejected map[string]string) {
	if len(rejected) > 0 {
		u = u.Without(func(r iptables.Rule) bool { return rejected[r.ID()] != "" })
	}
	for _, w := range u.Replace {
		t.committedChain(w.Name).replaced(w)
	}
	for name, rules := range u.Insert {
		t.committedChain(name).inserted(rules)
	}
	if len(u.Jumps) > 0 {
		t.jumpMissing, t.staleJumps = false, nil
	}
	for _, name := range u.Delete {
		switch c := t.chains[name]; {
		case c == nil:
		case c.wanted:
			c.exists, c.have, c.printed = false, nil, nil
			c.touch()
		default:
			t.removeChain(c)
		}
	}
}

// committedChain returns the chain of a name, which may have been dropped since the plan.
func (t *Table) committedChain(name string) *Chain {
	c := t.chains[name]
	if c == nil {
		c = &Chain{name: name, table: t, exists: true, rules: map[string]*rule{}}
		t.chains[name] = c
		c.touch()
	}
	return c
}
