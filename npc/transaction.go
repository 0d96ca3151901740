package npc

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/naming"
)

// Transaction is what makes one family's sets and chains those that the model wants. Its steps are
// applied in the order of the fields, so that what allows comes before what it replaces goes.
type Transaction struct {
	Family Family
	// Replaced are sets by our names that cannot be ours and are made anew, in words.
	Replaced []string
	// Revoke deletes what an address that changed hands had for its former pod.
	Revoke []ipset.Op
	// Forget are addresses that changed hands: their flows in conntrack are not the new pod's. They are deleted while the
	// transaction goes on, and nothing is opened to these addresses before they are.
	Forget []conntrack.Request
	// Grow creates sets with their members and adds members.
	Grow []ipset.Op
	// Rules are one iptables-restore, or several (Restores).
	Rules iptables.Update
	// Namespaces are those whose rules chains have: chain -> namespace.
	Namespaces map[string]string
	// Admit adds members to sets that lead to chains whose old rules, of policies that went before, are gone only now.
	Admit []ipset.Op
	// Leave deletes members of sets that lead to chains, in which nobody looks for them any more.
	Leave []ipset.Op
	// Shrink deletes members, then sets.
	Shrink []ipset.Op
}

// Empty says whether there is nothing to do.
func (tx Transaction) Empty() bool {
	return tx.Rules.Empty() && len(tx.Revoke)+len(tx.Forget)+len(tx.Grow)+len(tx.Admit)+len(tx.Leave)+len(tx.Shrink) == 0
}

// Restores returns the rules as they are written, part by part: all at once, or those of namespaces first if that would be more than limit rules.
// Each part leaves every pod with the rules of before or of after: to new chains nobody is led until the last part is written.
func (tx Transaction) Restores(limit int) []iptables.Part {
	return tx.Rules.Cut(limit, func(chain string) string {
		if chain == naming.DropChain(Ingress) || chain == naming.DropChain(Egress) {
			return iptables.FirstGroup // the ends of all others
		}
		return tx.Namespaces[chain]
	})
}

// LogValue sums the transaction up.
func (tx Transaction) LogValue() slog.Value {
	count := map[ipset.OpKind]int{}
	for _, op := range slices.Concat(tx.Revoke, tx.Grow, tx.Admit, tx.Leave, tx.Shrink) {
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
	add("addresses_forgotten", len(tx.Forget))
	return slog.GroupValue(attrs...)
}

// OnlyMembers reports whether the transaction changes nothing but members of sets, as pods that come and go do.
func (tx Transaction) OnlyMembers() bool {
	return tx.Rules.Empty() && !slices.ContainsFunc(slices.Concat(tx.Grow, tx.Leave, tx.Shrink), func(op ipset.Op) bool {
		return op.Kind != ipset.Add && op.Kind != ipset.Delete
	})
}

// String is the transaction in the syntax of `ipset restore`, `conntrack` and `iptables-restore`.
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
	ops("revoke what addresses had for their former pods", tx.Revoke)
	for _, r := range tx.Forget {
		which := ""
		if r.Scope == conntrack.WithLocalPods {
			which = " of local pods"
		}
		fmt.Fprintf(&b, "# %s: forget flows%s\nconntrack -D -s %s\nconntrack -D -d %s\n", tx.Family, which, r.Addr, r.Addr)
	}
	ops("create sets, add members", tx.Grow)
	if !tx.Rules.Empty() {
		fmt.Fprintf(&b, "# %s: rules\n%s", tx.Family, tx.Rules)
	}
	ops("add members that the old rules must not meet", tx.Admit)
	ops("delete members that are led elsewhere", tx.Leave)
	ops("delete members, destroy sets", tx.Shrink)
	return b.String()
}
