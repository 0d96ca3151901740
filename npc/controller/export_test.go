package controller

import "github.com/weave-npc/weave-npc/npc/dataplane"

// carryOut plans, and takes everything for carried out.
func (m *Controller) carryOut(collectGarbage bool) [2]dataplane.Transaction {
	txs := m.Plan(collectGarbage, [2]dataplane.Known{})
	for _, tx := range txs {
		m.Commit(tx, tx.Taken())
	}
	return txs
}

// Leftovers returns what the model holds of something that nobody owns: selectors without users. Package dataplane looks for sets and
// chains of that kind by itself.
func (m *Controller) Leftovers() (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.selectors {
		if len(s.users) == 0 {
			out = append(out, "selector "+s.String())
		}
	}
	return out
}

// Crowd has chains lead to at most so many parts one by one, and divides the rules of so many targets and more.
func (m *Controller) Crowd(n, targets int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.partTargets = targets
	for _, w := range m.ways {
		w.crowd = n
		m.pave(w)
	}
}
