package controller

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/queue"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// PlanStart returns what is to be done for each family before all objects are known. It takes nothing away: where weave-npc's chains
// stand, unknown addresses of the node's range are closed. With boot, on a node without pods and
// without such chains, the base is made, closed.
func (m *Controller) PlanStart(boot bool, known [len(traffic.Families)]dataplane.Known) [len(traffic.Families)]dataplane.Transaction {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setGates()
	var txs [len(traffic.Families)]dataplane.Transaction
	for f, t := range m.tables {
		txs[f] = t.PlanStart(boot, known[f], m.gates.sets[f][:])
	}
	return txs
}

// Plan returns what is to be done for each family, as far as it is known, after all changes up to now. With collectGarbage, that
// includes removing what does no harm and costs time to remove. Commit is to be called with what the kernel took of it.
func (m *Controller) Plan(collectGarbage bool, known [len(traffic.Families)]dataplane.Known) [len(traffic.Families)]dataplane.Transaction {
	m.mu.Lock()
	defer m.mu.Unlock()
	for f, t := range m.tables {
		known[f] = m.holdFound(t, known[f])
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
	var txs [len(traffic.Families)]dataplane.Transaction
	for f, t := range m.tables {
		var inTheWay []string
		if known[f] == dataplane.AllKnown {
			inTheWay = t.ResolveNames(collectGarbage)
		}
		txs[f] = t.Plan(dataplane.Options{Known: known[f], CollectGarbage: collectGarbage,
			NoPolicies: m.policyCount == 0 && !m.LegacyNetpol})
		txs[f].Mismatched = append(inTheWay, txs[f].Mismatched...)
	}
	return txs
}

// Commit takes over what the kernel took of a transaction. It returns the names of rejected sets and the ids of rejected rules
// that cannot be left out.
func (m *Controller) Commit(tx dataplane.Transaction, r dataplane.Result) (sets, rules []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tables[tx.Family].Commit(tx, r)
}

// holdFound has a family keep what was found, if input is missing. It returns how much may be planned:
// nothing until it is known what there is to keep.
func (m *Controller) holdFound(t *dataplane.Table, known dataplane.Known) dataplane.Known {
	switch {
	case m.missing == npc.NothingMissing:
		t.Chains.DropTexts()
		return known
	case t.Holding():
		return known
	case known != dataplane.AllKnown || t.Chains.ForeignLayout() != "":
		return dataplane.NothingKnown
	}
	t.Hold(m.ownerOf, m.defaultAllow[t.Family][:])
	return known
}

// ownerOf returns the pod that an address belongs to, as entries name it.
func (m *Controller) ownerOf(a netip.Addr) (dataplane.Pod, bool) {
	p := m.claims.Owner(a)
	if p == nil {
		return dataplane.Pod{}, false
	}
	return dataplane.Pod{Comment: comment(p.String()), LocalComment: p.localComment(), Local: p.local}, true
}

// Postpone leaves the rules of a namespace as they are in the kernel, and its pods where they are, or no more.
func (m *Controller) Postpone(f traffic.Family, namespace string, postpone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tables[f].Postpone(namespace, postpone)
}

// unfinished reports whether the last plan left rules that the next one removes.
func (m *Controller) unfinished() bool {
	return slices.ContainsFunc(m.tables[:], (*dataplane.Table).Unfinished)
}
