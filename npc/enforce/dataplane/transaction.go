package dataplane

import (
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/steps"
)

// Transaction makes one family's sets and chains the desired ones.
type Transaction struct {
	steps.Steps
	planned planned
}

// planned is what a plan found out besides its steps, for Commit.
type planned struct {
	// changes is the family's count of changes when the transaction was planned.
	changes uint64
	// sets and chains need no look by the next plan, unless they are changed meanwhile.
	sets   []*Set
	chains []*Chain
	// asked are the sets whose members rules ask for once they are written, and unasked those that no rule asks for any
	// more.
	asked, unasked []*Set
	// destroyNext are the sets that the next plan that collects garbage destroys.
	destroyNext []*Set
	// unfinished is set if rules are left that the next plan has to remove at once.
	unfinished bool
}

// newTransaction returns one that does nothing, planned now.
func newTransaction(f *family) Transaction {
	return Transaction{Steps: steps.Steps{Family: f.ip}, planned: planned{changes: f.changes}}
}

func (tx *Transaction) done(s *Set)             { tx.planned.sets = append(tx.planned.sets, s) }
func (tx *Transaction) reconcileChain(c *Chain) { tx.planned.chains = append(tx.planned.chains, c) }
