package dataplane

import (
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
)

// Result is what the kernel took of a transaction. What failed in a way that leaves open what the kernel holds is no
// part of it: then sets or chains have to be loaded again before the next plan.
type Result struct {
	// Asked is set if the flows of addresses that changed hands are being deleted.
	Asked bool
	// Written are the rules that were written.
	Written []iptables.Update
	// AllWritten is set if these are all rules. Otherwise nothing was done that needs them: of the steps after them,
	// only members of sets that dispatch nowhere were deleted.
	AllWritten bool
	// RejectedSets are the sets that the kernel does not take, by name, and RejectedRules such rules, by id -> why.
	RejectedSets, RejectedRules map[string]string
	// InUse are the sets that could not be destroyed because something refers to them.
	InUse []ipset.Set
}

// Taken returns the result of a transaction that the kernel applied completely.
func (tx Transaction) Taken() Result {
	return Result{Asked: true, Written: []iptables.Update{tx.Rules}, AllWritten: true}
}

// commit takes over what the kernel took of a transaction.
type commit struct {
	Result
	sets   *Sets
	chains *Chains
}

// transaction takes over the steps, in order; the rest is planned again.
func (c commit) transaction(tx Transaction) {
	c.ops(tx.DeleteStale)
	c.ops(tx.Close)
	if c.Asked {
		c.sets.flows.Asked(tx.FlushConntrack)
	}
	c.ops(tx.AddMembers)
	for _, u := range c.Written {
		c.rules(u)
	}
	if c.AllWritten {
		c.ops(tx.AddAfterRestore)
		c.ops(tx.DeleteDispatch)
		c.ops(tx.DeleteAndDestroy)
		c.ops(tx.Open)
		for _, s := range tx.planned.asked {
			s.asked = true
		}
		for _, s := range tx.planned.unasked {
			s.asked = false
		}
	} else {
		c.ops(tx.DeletedWithoutRules())
	}
}

// done has the next plan pass over the sets and chains that this one is done with, if the kernel took everything.
func (c commit) done(p planned) {
	if !c.Asked || !c.AllWritten || len(c.RejectedSets)+len(c.RejectedRules) > 0 {
		return
	}
	done(c.sets.marked, p.sets, p.changes)
	done(c.chains.marked, p.chains, p.changes)
	for _, s := range p.destroyNext {
		s.destroyNext = !s.wanted
	}
}

// ops takes over operations on sets. It finds the sets by their names, because one may have been dropped and wanted
// again since the plan.
func (c commit) ops(ops []ipset.Op) {
	for _, op := range ops {
		if c.RejectedSets[op.Set.Name] != "" {
			continue
		}
		s := c.sets.byName[op.Set.Name]
		if s == nil {
			if op.Kind != ipset.Create {
				continue
			}
			s = newSet(c.sets, op.Set, op.Set.Name)
			c.sets.byName[op.Set.Name] = s
			s.mark()
		}
		switch op.Kind {
		case ipset.Create:
			s.exists, s.found = true, ipset.Header{Set: op.Set}
		case ipset.Add:
			for _, el := range op.Elements {
				if c.RejectedSets[el.Set] == "" {
					s.touchIf(s.members.Have(el.Entry, el.Attr))
				}
			}
		case ipset.Delete:
			for _, el := range op.Elements {
				s.touchIf(s.members.Lack(el.Entry))
			}
		case ipset.Flush:
			s.unload()
		case ipset.Destroy:
			c.destroy(s, op)
		}
	}
}

func (c commit) destroy(s *Set, op ipset.Op) {
	switch inUse := slices.ContainsFunc(c.InUse, func(u ipset.Set) bool { return u.Name == op.Set.Name }); {
	case inUse:
		s.exists, s.found = true, ipset.Header{Set: op.Set}
	case s.wanted:
		s.exists, s.foreignLayout = false, ""
		s.unload()
	default:
		c.sets.remove(s)
	}
}

// rules takes over rules that were written, without those that were rejected.
func (c commit) rules(u iptables.Update) {
	if len(c.RejectedRules) > 0 {
		u = u.Without(func(r iptables.Rule) bool { return c.RejectedRules[r.ID()] != "" })
	}
	for _, w := range u.Replace {
		c.chain(w.Name).kernel.Replaced(w)
	}
	for name, rules := range u.Insert {
		c.chain(name).kernel.Inserted(rules)
	}
	for _, e := range u.Edits {
		c.chain(e.Chain).kernel.Edited(e)
	}
	for _, written := range u.Jumps {
		for _, j := range c.chains.jumps {
			if j.Wrote(written) {
				j.Written(written)
			}
		}
	}
	for _, name := range u.Delete {
		switch gone := c.chains.byName[name]; {
		case gone == nil:
		case gone.wanted:
			gone.kernel.Deleted()
			gone.Touch()
		default:
			c.chains.remove(gone)
		}
	}
}

// chain returns the chain of a name, which may have been dropped since the plan.
func (c commit) chain(name string) *Chain {
	found := c.chains.byName[name]
	if found == nil {
		found = c.chains.enter(name)
		found.kernel.Exists = true
		found.Touch()
	}
	return found
}
