package npc

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/conntrack"
)

// TestATransactionSaysAllItDoes: what --dry-run prints leaves no step out, and each step alone is something to do.
func TestATransactionSaysAllItDoes(t *testing.T) {
	op := func(kind ipset.OpKind, name string) []ipset.Op {
		return []ipset.Op{{Kind: kind, Set: ipset.Set{Name: name, Type: ipset.HashIP, Family: ipset.IPv4},
			Elements: []ipset.Element{{Entry: ipset.Addr(netip.MustParseAddr("10.0.0.1"))}}}}
	}
	if tx := (Transaction{}); !tx.Empty() || tx.String() != "" {
		t.Errorf("nothing to do is %q", tx.String())
	}
	for want, tx := range map[string]Transaction{
		"del revoked 10.0.0.1":        {Revoke: op(ipset.Delete, "revoked")},
		"conntrack -D -s 10.0.0.2":    {Forget: []conntrack.Request{{Addr: netip.MustParseAddr("10.0.0.2")}}},
		"conntrack -D -d 10.0.0.2":    {Forget: []conntrack.Request{{Addr: netip.MustParseAddr("10.0.0.2")}}},
		"add grown 10.0.0.1":          {Grow: op(ipset.Add, "grown")},
		":WEAVE-NPC-X - [0:0]":        {Rules: iptables.Update{Replace: []iptables.Chain{{Name: "WEAVE-NPC-X"}}}},
		"add admitted 10.0.0.1":       {Admit: op(ipset.Add, "admitted")},
		"del left 10.0.0.1":           {Leave: op(ipset.Delete, "left")},
		"del shrunk 10.0.0.1":         {Shrink: op(ipset.Delete, "shrunk")},
		"destroy gone":                {Shrink: op(ipset.Destroy, "gone")},
		"create weave hash:ip family": {Grow: op(ipset.Create, "weave")},
	} {
		if tx.Empty() || !strings.Contains(tx.String(), want) {
			t.Errorf("%q is not in %q", want, tx.String())
		}
	}
}
