// Package dataplane holds what one IP family should have in the kernel and is known to have, and plans the difference.
//
//	desired: Sets.Add, Chains ─┐
//	                           ├▶ Table ──Plan──▶ Transaction ──applied by the syncer──▶ Result ──Commit──▶ Table
//	known: LoadSets, LoadChains┘
//
//	table, set, chain, rule    sets have members with comments, chains have rules with owners
//	plan, changes, order       the steps of a transaction, in an order without wrong verdicts between them
//	commit, rejections         what the kernel took, and what it did not, which is left out until it is tried again
//	hold                       what the kernel held while input is missing, which stays
//	mismatch, observed         sets of our names that cannot be ours; drift
//
// It knows neither pods nor policies, and touches no kernel.
//
//	t := dataplane.NewTables()[npc.IPv4]
//	t.Sets.Add(name, ipset.HashIP, "pods with app=web").Add(ipset.Addr(a), ipset.Attr{Comment: "shop/web"})
//	tx := t.Plan(dataplane.Options{})          // changes nothing
//	t.Commit(tx, tx.Taken())                   // or what the kernel took of it
package dataplane

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/jump"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/setref"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// Table is all that one family has in the kernel, as it is desired and as it is known to be.
type Table struct {
	Family npc.Family
	Sets   *Sets
	Chains *Chains
	// Local is the set of the local pods.
	Local *Set
	// Flows are the addresses that changed hands and have connections of former pods. Until these are deleted, nothing
	// is opened to their next pods: a local one is closed, and a remote one is no peer.
	Flows *conntrack.Pending

	family     *family
	rejections rejections
	// postponed are the namespaces whose rules are left as they are.
	postponed map[string]bool
	// hold is what stays because input is missing; nil if nothing is.
	hold *hold
	// unfinished is set if the last transaction left rules that must go at once now that it was carried out.
	unfinished bool
}

// NewTables returns the tables of both families.
func NewTables() [len(npc.Families)]*Table {
	var ts [len(npc.Families)]*Table
	for _, f := range npc.Families {
		ts[f] = newTable(f)
	}
	ts[npc.IPv4].Sets.other, ts[npc.IPv6].Sets.other = ts[npc.IPv6].Sets, ts[npc.IPv4].Sets
	for _, t := range ts {
		t.Sets.local = t.Sets.AddFixed(naming.LocalPods, ipset.HashIP, "local pods")
		t.Local = t.Sets.local
	}
	return ts
}

func newTable(ip npc.Family) *Table {
	f := &family{ip: ip, aliases: setref.Aliases{}, rejected: setref.Rejected{}, incomplete: setref.Rejected{}}
	sets, chains := newSets(f), newChains(f)
	return &Table{Family: ip, Sets: sets, Chains: chains, Flows: sets.flows, family: f, postponed: map[string]bool{},
		rejections: rejections{sets: sets, chains: chains}}
}

// Activate has everything programmed from now on.
func (t *Table) Activate() {
	if t.family.active {
		return
	}
	t.family.active = true
	t.touchAll()
}

func (t *Table) touchAll() {
	t.Sets.touchAll()
	t.Chains.touchAll()
}

// Active reports whether a local pod has had an address of the family.
func (t *Table) Active() bool { return t.family.active }

// LoadSets takes over the sets that were read from the kernel.
func (t *Table) LoadSets(listings []ipset.Listing) {
	t.Sets.load(listings)
	t.Sets.readUses(t.Chains)
}

// LoadChains takes over the chains that were read from the kernel.
func (t *Table) LoadChains(seen iptables.Seen) {
	t.Chains.load(seen)
	if foreign := t.Chains.ForeignLayout(); foreign != "" {
		t.Sets.markForeign(foreign)
	}
	t.Sets.readUses(t.Chains)
}

// Hold keeps what the family's kernel holds now and no object accounts for, until Release; free are the sets with the
// pods that nothing isolates.
func (t *Table) Hold(owner Owners, free []*Set) {
	t.hold = newHold(t.Sets, t.Chains, owner, free)
	t.Chains.DropTexts()
}

// Holding reports whether Hold was called and Release not since.
func (t *Table) Holding() bool { return t.hold != nil }

// Release ends keeping what was found.
func (t *Table) Release() {
	if t.hold != nil {
		t.hold.release()
		t.hold = nil
	}
	t.touchAll()
}

// Reassign ends keeping what was found for an address, as its entry, that another pod has now, or none any more; known
// is set if the former pod was read.
func (t *Table) Reassign(e ipset.Entry, known bool) {
	if t.hold != nil {
		t.hold.reassign(e, known)
	}
}

// HoldsPods reports whether local pods stay that no object accounts for.
func (t *Table) HoldsPods() bool { return len(t.Local.kept) > 0 }

// HoldsIsolated reports, for each of the sets given to Hold, whether a pod that was found with an address stays
// isolated.
func (t *Table) HoldsIsolated(a netip.Addr) (is [len(npc.Directions)]bool) {
	if t.hold != nil {
		is = t.hold.isolates(a)
	}
	return is
}

// Postpone leaves the rules of a namespace as they are in the kernel, and its pods where they are, or no more.
func (t *Table) Postpone(namespace string, postpone bool) {
	if postpone {
		t.postponed[namespace] = true
	} else {
		delete(t.postponed, namespace)
	}
}

// ResolveNames gives sets other names in the kernel whose own name is taken by a set that cannot be the desired one,
// and that is in use: it can neither be destroyed nor always be swapped for another. The rules find the desired one by
// that name until the wrong one is gone; with back, sets get their own names back that are free again. It is to be
// called before Plan, and returns what was in the way, in words.
func (t *Table) ResolveNames(back bool) (inTheWay []string) {
	return renamer{t.Sets, t.Chains}.resolve(back)
}

// PlanStart returns what is to be done before all objects are known. It takes nothing away: where weave-npc's chains
// stand, the fail-closed filters drop. With boot, on a node without pods and without such chains, the base is made,
// closed.
func (t *Table) PlanStart(boot bool, known Known, failClosedSets []*Set) Transaction {
	// Sets alone do nothing: the process that made them stopped before it made the chains.
	if standing, _ := t.Chains.size(); boot && known == AllKnown && standing == 0 {
		return t.Plan(Options{Mismatched: t.ResolveNames(false)})
	}
	tx := newTransaction(t.family)
	if known != NothingKnown {
		tx.AddMembers = planFailClosedSets(failClosedSets)
	}
	return tx
}

// Commit takes over what the kernel took of a transaction that Plan returned; the rest is planned again. It returns the
// names of rejected sets and the ids of rejected rules that cannot be left out: those of policies and those that only
// report can.
func (t *Table) Commit(tx Transaction, r Result) (sets, rules []string) {
	t.unfinished = tx.planned.unfinished
	c := commit{Result: r, sets: t.Sets, chains: t.Chains}
	c.transaction(tx)
	sets, rules = t.rejections.rejectSets(r.RejectedSets), t.rejections.rejectRules(r.RejectedRules)
	c.done(tx.planned)
	return sets, rules
}

// Retry has the rules and sets planned again that were rejected.
func (t *Table) Retry() { t.rejections.retry() }

// Rejecting reports whether the kernel did not take some rules or sets.
func (t *Table) Rejecting() bool { return t.rejections.any }

// Rejected yields the policies with a rule that is left out -> why.
func (t *Table) Rejected() iter.Seq2[*Owner, string] { return t.rejections.policies() }

// LoggingRejected returns why packets that are dropped are not reported, in some direction; empty if they are.
func (t *Table) LoggingRejected() string { return t.rejections.ofLogging() }

// Stale reports whether a plan may find something to do. What is left for later and what is left out counts.
func (t *Table) Stale() bool {
	return len(t.Sets.marked)+len(t.Chains.marked) > 0 || t.Flows.Untaken() ||
		slices.ContainsFunc(t.Chains.jumps, (*jump.Jump).Missing) || t.rejections.any
}

// Unfinished reports whether the last transaction left rules that the next one removes.
func (t *Table) Unfinished() bool { return t.unfinished }

// Garbage reports whether a plan left something for later.
func (t *Table) Garbage() bool {
	for s := range t.Sets.marked {
		if !s.wanted {
			return true
		}
	}
	return len(t.family.aliases) > 0 || len(t.Chains.marked) > 0
}

// Size counts what the kernel has.
func (t *Table) Size() (sets, entries, chains, rules int) {
	sets, entries = t.Sets.size()
	chains, rules = t.Chains.size()
	return sets, entries, chains, rules
}

// Entries returns how many entries all sets of a table are to have.
func Entries(t *Table) int { return t.Sets.entries }

// EntriesOf returns how many entries a set has or is to have.
func EntriesOf(s *Set) int { return s.members.Len() }
