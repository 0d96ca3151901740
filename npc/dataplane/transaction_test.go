package dataplane_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/dataplane/steps"
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
	for want, tx := range map[string]steps.Steps{
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

// TestWhatIsLogged: only what is done is counted.
func TestWhatIsLogged(t *testing.T) {
	n := newNode(t)
	if got := n.carryOut().LogValue().String(); !strings.HasPrefix(got, "[sets_created=9 members_added=2 chains_replaced=14 jumps_placed=1]") {
		t.Errorf("first: %s", got)
	}
	n.rules.Own(n.policy, "-p tcp", 2)
	if got := n.Plan(dataplane.Options{}).LogValue().String(); got != "[rules_inserted=1]" {
		t.Errorf("then: %s", got)
	}
}

// TestACommentNamesSomeOwners: policies that share a rule are not all named, and the first of them are.
func TestACommentNamesSomeOwners(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"e", "d", "c", "b", "a"} {
		n.rules.Own(&dataplane.Owner{Namespace: "shop", Name: name}, fromPeers, 1)
	}
	n.expect(n.Plan(dataplane.Options{}).String(), "+shop/a rule 1 / shop/b rule 1 / shop/c rule 1 / and 3 more")
}
