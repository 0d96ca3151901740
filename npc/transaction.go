package npc

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
)

// Transaction is what makes one family's sets and chains those that the model wants. Its steps are
// applied in the order of the fields, so that what allows comes before what it replaces goes.
type Transaction struct {
	Family Family
	// Revoke deletes what an address that changed hands had for its former pod.
	Revoke []ipset.Op
	// Forget are local addresses that changed hands: their flows in conntrack are not the new pod's.
	Forget []netip.Addr
	// Grow creates sets with their members and adds members.
	Grow []ipset.Op
	// Rules is one iptables-restore.
	Rules iptables.Update
	// Shrink deletes members, then sets.
	Shrink []ipset.Op
}

// Empty says whether there is nothing to do.
func (tx Transaction) Empty() bool {
	return len(tx.Revoke) == 0 && len(tx.Forget) == 0 && len(tx.Grow) == 0 && tx.Rules.Empty() && len(tx.Shrink) == 0
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
	for _, a := range tx.Forget {
		fmt.Fprintf(&b, "# %s: forget flows\nconntrack -D -s %s\nconntrack -D -d %s\n", tx.Family, a, a)
	}
	ops("create sets, add members", tx.Grow)
	if !tx.Rules.Empty() {
		fmt.Fprintf(&b, "# %s: rules\n%s", tx.Family, tx.Rules)
	}
	ops("delete members, destroy sets", tx.Shrink)
	return b.String()
}
