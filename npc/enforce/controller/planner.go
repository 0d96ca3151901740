package controller

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/networkpolicy"
)

// Planner plans transactions for the one who carries them out, and takes what became of them and what the kernel holds.
type Planner struct{ c *Controller }

// Planner returns the plans for what changed, for the one who carries them out.
func (c *Controller) Planner() Planner { return Planner{c} }

// LoadSets takes over the sets that were read from the kernel for a family. It and LoadChains are to be called before
// the first plan, and whenever it is not known what the kernel took of a transaction, or others changed it.
func (p Planner) LoadSets(f npc.Family, sets []ipset.Listing) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.state.tables[f].LoadSets(sets)
	p.c.state.late.load(f, sets)
	if p.c.state.synced {
		p.c.state.findReassigned(p.c.state.tables[f])
	}
}

// LoadChains does the same with the chains that were read.
func (p Planner) LoadChains(f npc.Family, seen iptables.Seen) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.state.tables[f].LoadChains(seen)
}

// ForeignLayout returns the layout of a family's sets and chains as they were last loaded, if it is another
// version's; else empty. Such are rewritten: what their sets mean is not known.
func (p Planner) ForeignLayout(f npc.Family) string {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.state.tables[f].Chains.ForeignLayout()
}

// SetDrift describes how a family's sets differ from what the transactions left, by the sets' headers.
func (p Planner) SetDrift(f npc.Family, headers []ipset.Header) []string {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.state.tables[f].Sets.Drift(headers)
}

// MemberDrift describes the same by the members of some sets.
func (p Planner) MemberDrift(f npc.Family, listings []ipset.Listing) []string {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.state.tables[f].Sets.MemberDrift(listings)
}

// ChainDrift returns in words how a family's chains differ from what the transactions left.
func (p Planner) ChainDrift(f npc.Family, seen iptables.Seen) []string {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.state.tables[f].Chains.Drift(seen)
}

// PlanStart returns what is to be done for each family before all objects are known. It takes nothing away: where
// weave-npc's chains stand, unknown addresses of the node's range are closed. With boot, on a node without pods and
// without such chains, the base is made, closed.
func (p Planner) PlanStart(boot bool,
	known [len(npc.Families)]dataplane.Known) (txs [len(npc.Families)]dataplane.Transaction) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.state.failClosed.Update(p.c.state.facts())
	for f, t := range p.c.state.tables {
		txs[f] = t.PlanStart(boot, known[f], p.c.state.failClosed.Sets(npc.Family(f)))
	}
	return txs
}

// Plan returns the transaction of each family that is known, after all changes up to now. With collectGarbage, the
// transaction includes removing what does no harm and costs time to remove. Commit must be called with what the kernel
// accepted of it.
func (p Planner) Plan(collectGarbage bool,
	known [len(npc.Families)]dataplane.Known) (txs [len(npc.Families)]dataplane.Transaction) {
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.changes.batch == policyChanges:
		c.state.reconcileBudget()
		c.evaluator.forget()
	case c.state.synced && networkpolicy.Outgrown(c.state.isolation):
		c.changes.reconcileLater()
		c.wake.send()
	}
	c.state.isolation.Write()
	for f, t := range c.state.tables {
		known[f] = p.holdFound(t, known[f])
	}
	p.followKernel()
	c.state.failClosed.Update(c.state.facts())
	c.changes.plan(c.state.synced)
	c.changes.edited, c.state.edited = c.changes.edited || c.state.edited, false
	c.changes.late = append(c.changes.late, c.state.late.take(c.state.policies.mayDeny)...)
	for f, t := range c.state.tables {
		o := dataplane.Options{Known: known[f], CollectGarbage: collectGarbage,
			NoPolicies: c.state.isolation.Counts().Policies+c.state.tiers.Counts().Policies == 0 &&
				!c.state.config.LegacyNetpol,
			Recorded: c.state.failClosed.Recorded(t.Family), Editing: c.state.editing}
		if o.Known == dataplane.AllKnown {
			o.Mismatched = t.ResolveNames(collectGarbage)
		}
		txs[f] = t.Plan(o)
	}
	return txs
}

// followKernel keeps what leads to the lists of a tier while the kernel sends pods there, and takes it away when it
// does not. It reports whether that changed something.
func (p Planner) followKernel() bool {
	s := p.c.state
	if !s.tiers.Look() {
		return false
	}
	s.rebase()
	s.tiers.Prune()
	return true
}

// Commit takes over what the kernel took of a transaction. It returns the names of rejected sets and the ids of
// rejected rules that cannot be left out.
func (p Planner) Commit(tx dataplane.Transaction, r dataplane.Result) (sets, rules []string) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.state.tables[tx.Family].Commit(tx, r)
}

// Resume reports whether another plan is due now that one was carried out: it had to leave something, or changes waited
// for it, and the next of them are applied.
func (p Planner) Resume() bool {
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes.inFlight = false
	pruned := c.state.isolation.Prune()
	if p.followKernel() || c.state.unfinished() || c.changes.any() {
		return true
	}
	if events := c.changes.next(); len(events) > 0 {
		for _, e := range events {
			c.apply(e)
		}
		return true
	}
	if c.state.input.missing() != npc.NothingMissing ||
		!slices.ContainsFunc(c.state.tables[:], (*dataplane.Table).Holding) {
		return pruned
	}
	p.release()
	return true
}

// Postpone leaves the rules of a namespace as they are in the kernel, and its pods where they are, or no more.
func (p Planner) Postpone(f npc.Family, namespace string, postpone bool) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.state.tables[f].Postpone(namespace, postpone)
}

// Retry has the rules and sets of a family planned again that the kernel rejected.
func (p Planner) Retry(f npc.Family) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.state.tables[f].Retry()
}

// Forgotten takes the addresses whose connections of former pods are all deleted, as plans asked.
func (p Planner) Forgotten(f npc.Family, addrs []netip.Addr) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.state.tables[f].Flows.Remove(addrs)
}

// TakeEdits reports whether flows may have another verdict by what was planned since the last call, other than by pods
// that come and go: policies, labels, named ports, namespaces or Nodes changed.
func (p Planner) TakeEdits() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	was := p.c.changes.edited
	p.c.changes.edited = false
	return was
}

// TakeLate returns the addresses that became local pods' by what was planned since the last call, and whose connections
// policies may deny that began before.
func (p Planner) TakeLate() []netip.Addr {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	taken := p.c.changes.late
	p.c.changes.late = nil
	return taken
}

// EndLate has the rules written by which connections end that began before their pod was known.
func (p Planner) EndLate() {
	p.c.change(queuedChange{Kind: policyChanges, Key: "late", Apply: func() {
		p.c.state.endsLate = true
		p.c.state.setBase()
	}})
}

// HasGarbage reports whether a plan left sets or chains in the kernel that nothing uses any more.
func (p Planner) HasGarbage() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return slices.ContainsFunc(p.c.state.tables[:], (*dataplane.Table).Garbage)
}

// HasMuchGarbage reports whether there is so much of it that writing takes notably longer.
func (p Planner) HasMuchGarbage() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return slices.ContainsFunc(p.c.state.tables[:], func(t *dataplane.Table) bool { return t.Chains.TooManyUnused() })
}

// CarriedOut marks all planned changes as carried out. It returns when the first of them came; zero if there were none.
func (p Planner) CarriedOut() time.Time {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.changes.carriedOut()
}

// Waiting returns how long the oldest change has been waiting that the kernel may not hold yet.
func (p Planner) Waiting() time.Duration {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.changes.waiting()
}

// NextChange returns when time alone changes what is wanted, after the time that the last plan was made for; zero if it
// does not. It may have passed meanwhile.
func (p Planner) NextChange() time.Time {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.state.failClosed.NextDeadline()
}

// holdFound has a family keep what was found, if input is missing. It returns how much may be planned: nothing until it
// is known what is to be kept.
func (p Planner) holdFound(t *dataplane.Table, known dataplane.Known) dataplane.Known {
	switch {
	case p.c.state.input.missing() == npc.NothingMissing:
		t.Chains.DropTexts()
		return known
	case t.Holding():
		return known
	case known != dataplane.AllKnown || t.Chains.ForeignLayout() != "":
		return dataplane.NothingKnown
	}
	t.Hold(p.ownerOf, p.c.state.isolation.Allowed(t.Family))
	p.c.state.tiers.Hold(t.HeldLists())
	p.c.state.rebase()
	return known
}

// release ends keeping what was found.
func (p Planner) release() {
	s := p.c.state
	s.tiers.Release()
	s.rebase()
	for _, t := range s.tables {
		t.Release()
		s.findReassigned(t)
	}
	s.tiers.Prune()
}

// ownerOf returns the pod that an address belongs to, as entries name it.
func (p Planner) ownerOf(a netip.Addr) (dataplane.Pod, bool) {
	owner := p.c.state.index.Addresses.Owner(a)
	if owner == nil {
		return dataplane.Pod{}, false
	}
	return dataplane.Pod{Comment: owner.Comment(), LocalComment: owner.LocalComment(), Local: owner.Local()}, true
}
