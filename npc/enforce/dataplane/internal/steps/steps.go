// Package steps holds the steps that change one family's sets and chains, and prints them. It also knows which entries
// they move from one chain to another.
//
//	fmt.Print(s) // in the syntax of ipset restore, conntrack and iptables-restore
package steps

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// Steps are carried out in the order of the fields, so that what allows comes before what it replaces goes.
type Steps struct {
	Family npc.Family
	// Mismatched describes sets that have the names of desired ones, cannot be these and are made again.
	Mismatched []string
	// DeleteStale deletes what an address that changed hands had for its former pod. Before, it records in the set of
	// the local pods whose the address is or was, and how that pod is isolated.
	DeleteStale []ipset.Op
	// Close closes what must not meet half of a change of tiers: it takes local pods out of all lists, so that their
	// packets are dropped, and has others denied.
	Close []ipset.Op
	// FlushConntrack are addresses that changed hands: their flows in conntrack are not the new pod's. They are deleted
	// while the transaction goes on, and nothing is opened to these addresses before they are.
	FlushConntrack []conntrack.Request
	// AddMembers creates sets with their members and adds members.
	AddMembers []ipset.Op
	// Rules are one iptables-restore, or several (Restores).
	Rules iptables.Update
	// Namespaces are those whose rules chains have: chain -> namespace.
	Namespaces map[string]string
	// AddAfterRestore adds members to sets that dispatch to chains whose old rules, of deleted policies, are gone only
	// now.
	AddAfterRestore []ipset.Op
	// DeleteDispatch deletes members of dispatch sets that no rule asks for any more.
	DeleteDispatch []ipset.Op
	// DeleteAndDestroy deletes members, then sets.
	DeleteAndDestroy []ipset.Op
	// Open opens what Close closed, and ends what DeleteStale recorded.
	Open []ipset.Op
}

// Write has a chain changed, and records whose rules it has; namespace is empty if they are those of several.
func (s *Steps) Write(namespace string, w iptables.Chain, ch iptables.ChainChange) {
	s.Rules.Change(w, ch)
	if namespace == "" {
		return
	}
	if s.Namespaces == nil {
		s.Namespaces = map[string]string{}
	}
	s.Namespaces[w.Name] = namespace
}

// Empty reports whether there is nothing to do.
func (s Steps) Empty() bool {
	return s.Rules.Empty() && len(s.DeleteStale)+len(s.FlushConntrack)+len(s.Close)+len(s.AddMembers)+
		len(s.AddAfterRestore)+
		len(s.DeleteDispatch)+len(s.DeleteAndDestroy)+len(s.Open) == 0
}

// Restores returns the rules as they are written, part by part: all at once, or those of namespaces first if that would
// be more than limit rules. With each part every pod has the rules of before or of after: no packet is dispatched to
// new chains until the last part is written.
func (s Steps) Restores(limit int) []iptables.Part {
	return s.Rules.Split(limit, func(chain string) string {
		if chain == naming.DropChain(npc.Ingress) || chain == naming.DropChain(npc.Egress) {
			return iptables.FirstGroup // the ends of all others
		}
		return s.Namespaces[chain]
	})
}

// DeletedWithoutRules returns what is done of DeleteAndDestroy if not all rules were written. What the old rules allow
// by sets that are not wanted any more stays, and who is led to them; members that are not wanted go.
func (s Steps) DeletedWithoutRules() []ipset.Op {
	return slices.DeleteFunc(slices.Clone(s.DeleteAndDestroy),
		func(op ipset.Op) bool { return op.Kind != ipset.Delete })
}

// LogValue sums the steps up.
func (s Steps) LogValue() slog.Value {
	count := map[ipset.OpKind]int{}
	for _, op := range slices.Concat(s.DeleteStale, s.Close, s.AddMembers, s.AddAfterRestore, s.DeleteDispatch,
		s.DeleteAndDestroy, s.Open) {
		if op.Kind == ipset.Create {
			count[op.Kind]++
			continue
		}
		count[op.Kind] += max(len(op.Elements), 1)
	}
	deleted, inserted := 0, 0
	for _, rules := range s.Rules.Insert {
		inserted += len(rules)
	}
	for _, e := range s.Rules.Edits {
		d, i := e.Count()
		deleted, inserted = deleted+d, inserted+i
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
	add("chains_replaced", len(s.Rules.Replace))
	add("chains_edited", len(s.Rules.Edits))
	add("rules_deleted", deleted)
	add("rules_inserted", inserted)
	add("chains_deleted", len(s.Rules.Delete))
	add("jumps_placed", len(s.Rules.Jumps))
	add("addresses_forgotten", len(s.FlushConntrack))
	return slog.GroupValue(attrs...)
}

// OnlyMembers reports whether the steps does no more than pods that come and go ask for.
func (s Steps) OnlyMembers() bool {
	changes := slices.Concat(s.Close, s.AddMembers, s.DeleteDispatch, s.DeleteAndDestroy, s.Open)
	return s.Rules.Empty() && !slices.ContainsFunc(changes, func(op ipset.Op) bool {
		return op.Kind != ipset.Add && op.Kind != ipset.Delete
	})
}

// String returns the steps in the syntax of `ipset restore`, `conntrack` and `iptables-restore`.
func (s Steps) String() string {
	var b strings.Builder
	ops := func(step string, ops []ipset.Op) {
		if len(ops) == 0 {
			return
		}
		fmt.Fprintf(&b, "# %s: %s\n", s.Family, step)
		for _, op := range ops {
			fmt.Fprintf(&b, "%s\n", strings.TrimRight(op.String(), "\n"))
		}
	}
	ops("revoke what addresses had for their former pods", s.DeleteStale)
	ops("close what must not meet half of a change", s.Close)
	for _, r := range s.FlushConntrack {
		which := ""
		if r.Scope == conntrack.WithLocalPods {
			which = " of local pods"
		}
		fmt.Fprintf(&b, "# %s: forget flows%s\nconntrack -D -s %s\nconntrack -D -d %s\n",
			s.Family, which, r.Addr, r.Addr)
	}
	ops("create sets, add members", s.AddMembers)
	if !s.Rules.Empty() {
		fmt.Fprintf(&b, "# %s: rules\n%s", s.Family, s.Rules)
	}
	ops("add members that the old rules must not meet", s.AddAfterRestore)
	ops("delete members that are led elsewhere", s.DeleteDispatch)
	ops("delete members, destroy sets", s.DeleteAndDestroy)
	ops("open what was closed", s.Open)
	return b.String()
}
