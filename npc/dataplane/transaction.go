package dataplane

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// Transaction makes one family's sets and chains the desired ones. Its steps are applied in the order of the fields, so that what
// allows comes before what it replaces goes.
type Transaction struct {
	Family traffic.Family
	// Mismatched are sets that have the names of desired ones, cannot be these and are made anew, in words.
	Mismatched []string
	// DeleteStale deletes what an address that changed hands had for its former pod.
	DeleteStale []ipset.Op
	// FlushConntrack are addresses that changed hands: their flows in conntrack are not the new pod's. They are deleted while the
	// transaction goes on, and nothing is opened to these addresses before they are.
	FlushConntrack []conntrack.Request
	// AddMembers creates sets with their members and adds members.
	AddMembers []ipset.Op
	// Rules are one iptables-restore, or several (Restores).
	Rules iptables.Update
	// Namespaces are those whose rules chains have: chain -> namespace.
	Namespaces map[string]string
	// AddAfterRestore adds members to sets that lead to chains whose old rules, of policies that went before, are gone only now.
	AddAfterRestore []ipset.Op
	// DeleteDispatch deletes members of sets that lead to chains, in which nobody looks for them any more.
	DeleteDispatch []ipset.Op
	// DeleteAndDestroy deletes members, then sets.
	DeleteAndDestroy []ipset.Op

	planned planned
}

// planned is what a plan found out beside what is to be done, for Commit.
type planned struct {
	// changes is the family's count of changes when the transaction was planned.
	changes uint64
	// sets and chains need no look by the next plan, unless they are changed meanwhile.
	sets   []*Set
	chains []*Chain
	// destroyNext are the sets that the next plan that collects garbage destroys.
	destroyNext []*Set
	// unfinished is set if rules are left that the next plan has to remove at once.
	unfinished bool
}

// newTransaction returns one that does nothing, planned now.
func newTransaction(f *family) Transaction {
	return Transaction{Family: f.ip, planned: planned{changes: f.changes}}
}

func (tx *Transaction) settle(s *Set)        { tx.planned.sets = append(tx.planned.sets, s) }
func (tx *Transaction) settleChain(c *Chain) { tx.planned.chains = append(tx.planned.chains, c) }

// replace rewrites a chain.
func (tx *Transaction) replace(c *Chain, w iptables.Chain) {
	tx.Rules.Replace = append(tx.Rules.Replace, w)
	tx.nameNamespace(c)
}

// insert puts rules at a chain's head.
func (tx *Transaction) insert(c *Chain, rules []iptables.Rule) {
	if tx.Rules.Insert == nil {
		tx.Rules.Insert = map[string][]iptables.Rule{}
	}
	tx.Rules.Insert[c.name] = rules
	tx.nameNamespace(c)
}

// nameNamespace records whose rules a chain has that is written.
func (tx *Transaction) nameNamespace(c *Chain) {
	if c.namespace == "" {
		return
	}
	if tx.Namespaces == nil {
		tx.Namespaces = map[string]string{}
	}
	tx.Namespaces[c.name] = c.namespace
}

func (tx *Transaction) placeJump(r iptables.Rule, stale []string) {
	tx.Rules.Jumps = append(tx.Rules.Jumps, iptables.Jump{Chain: naming.HookChain, Rule: r, Stale: stale})
}

// Empty reports whether there is nothing to do.
func (tx Transaction) Empty() bool {
	return tx.Rules.Empty() && len(tx.DeleteStale)+len(tx.FlushConntrack)+len(tx.AddMembers)+len(tx.AddAfterRestore)+
		len(tx.DeleteDispatch)+len(tx.DeleteAndDestroy) == 0
}

// Restores returns the rules as they are written, part by part: all at once, or those of namespaces first if that would be more than
// limit rules. Each part leaves every pod with the rules of before or of after: to new chains nobody is led until the last part is written.
func (tx Transaction) Restores(limit int) []iptables.Part {
	return tx.Rules.Cut(limit, func(chain string) string {
		if chain == naming.DropChain(traffic.Ingress) || chain == naming.DropChain(traffic.Egress) {
			return iptables.FirstGroup // the ends of all others
		}
		return tx.Namespaces[chain]
	})
}

// LogValue sums the transaction up.
func (tx Transaction) LogValue() slog.Value {
	count := map[ipset.OpKind]int{}
	for _, op := range slices.Concat(tx.DeleteStale, tx.AddMembers, tx.AddAfterRestore, tx.DeleteDispatch, tx.DeleteAndDestroy) {
		count[op.Kind] += max(len(op.Elements), 1)
	}
	inserted := 0
	for _, rules := range tx.Rules.Insert {
		inserted += len(rules)
	}
	var attrs []slog.Attr
	add := func(name string, n int) {
		if n > 0 {
			attrs = append(attrs, slog.Int(name, n))
		}
	}
	add("sets_created", count[ipset.Create])
	add("members_added", count[ipset.Add])
	add("members_deleted", count[ipset.Delete])
	add("sets_emptied", count[ipset.Flush])
	add("sets_destroyed", count[ipset.Destroy])
	add("chains_replaced", len(tx.Rules.Replace))
	add("rules_inserted", inserted)
	add("chains_deleted", len(tx.Rules.Delete))
	add("jumps_placed", len(tx.Rules.Jumps))
	add("addresses_forgotten", len(tx.FlushConntrack))
	return slog.GroupValue(attrs...)
}

// OnlyMembers reports whether the transaction does no more than pods that come and go ask for.
func (tx Transaction) OnlyMembers() bool {
	return tx.Rules.Empty() && !slices.ContainsFunc(slices.Concat(tx.AddMembers, tx.DeleteDispatch, tx.DeleteAndDestroy), func(op ipset.Op) bool {
		return op.Kind != ipset.Add && op.Kind != ipset.Delete
	})
}

// String returns the transaction in the syntax of `ipset restore`, `conntrack` and `iptables-restore`.
func (tx Transaction) String() string {
	var b strings.Builder
	ops := func(step string, ops []ipset.Op) {
		if len(ops) == 0 {
			return
		}
		fmt.Fprintf(&b, "# %s: %s\n", tx.Family, step)
		for _, op := range ops {
			fmt.Fprintf(&b, "%s\n", strings.TrimRight(op.String(), "\n"))
		}
	}
	ops("revoke what addresses had for their former pods", tx.DeleteStale)
	for _, r := range tx.FlushConntrack {
		which := ""
		if r.Scope == conntrack.WithLocalPods {
			which = " of local pods"
		}
		fmt.Fprintf(&b, "# %s: forget flows%s\nconntrack -D -s %s\nconntrack -D -d %s\n", tx.Family, which, r.Addr, r.Addr)
	}
	ops("create sets, add members", tx.AddMembers)
	if !tx.Rules.Empty() {
		fmt.Fprintf(&b, "# %s: rules\n%s", tx.Family, tx.Rules)
	}
	ops("add members that the old rules must not meet", tx.AddAfterRestore)
	ops("delete members that are led elsewhere", tx.DeleteDispatch)
	ops("delete members, destroy sets", tx.DeleteAndDestroy)
	return b.String()
}
