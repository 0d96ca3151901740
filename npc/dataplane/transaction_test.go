package dataplane_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/dataplane"
)

// TestATransactionSaysAllItDoes: what --dry-run prints leaves no step out, and each step alone is something to do.
func TestATransactionSaysAllItDoes(t *testing.T) {
	op := func(kind ipset.OpKind, name string) []ipset.Op {
		return []ipset.Op{{Kind: kind, Set: ipset.Set{Name: name, Type: ipset.HashIP, Family: ipset.IPv4},
			Elements: []ipset.Element{{Entry: ipset.Addr(netip.MustParseAddr("10.0.0.1"))}}}}
	}
	if tx := (dataplane.Transaction{}); !tx.Empty() || tx.String() != "" {
		t.Errorf("nothing to do is %q", tx.String())
	}
	for want, tx := range map[string]dataplane.Transaction{
		"del revoked 10.0.0.1":        {DeleteStale: op(ipset.Delete, "revoked")},
		"conntrack -D -s 10.0.0.2":    {FlushConntrack: []conntrack.Request{{Addr: netip.MustParseAddr("10.0.0.2")}}},
		"conntrack -D -d 10.0.0.2":    {FlushConntrack: []conntrack.Request{{Addr: netip.MustParseAddr("10.0.0.2")}}},
		"add grown 10.0.0.1":          {AddMembers: op(ipset.Add, "grown")},
		":WEAVE-NPC-X - [0:0]":        {Rules: iptables.Update{Replace: []iptables.Chain{{Name: "WEAVE-NPC-X"}}}},
		"add admitted 10.0.0.1":       {AddAfterRestore: op(ipset.Add, "admitted")},
		"del left 10.0.0.1":           {DeleteDispatch: op(ipset.Delete, "left")},
		"del shrunk 10.0.0.1":         {DeleteAndDestroy: op(ipset.Delete, "shrunk")},
		"destroy gone":                {DeleteAndDestroy: op(ipset.Destroy, "gone")},
		"create weave hash:ip family": {AddMembers: op(ipset.Create, "weave")},
	} {
		if tx.Empty() || !strings.Contains(tx.String(), want) {
			t.Errorf("%q is not in %q", want, tx.String())
		}
	}
}
