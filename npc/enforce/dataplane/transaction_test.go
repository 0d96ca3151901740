package dataplane_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/steps"
	"github.com/weave-npc/weave-npc/npc/policy"
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
		"-D WEAVE-NPC-X 8":            {Rules: iptables.Update{Edits: []iptables.Edit{{Chain: "WEAVE-NPC-X", Rules: 9, Hunks: []iptables.Hunk{{At: 7, Delete: 1}}}}}},
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
	if got := n.carryOut().LogValue().String(); !strings.HasPrefix(got, "[sets_created=11 members_added=2 chains_replaced=15 jumps_placed=1]") {
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

// TestAnOrderedChainIsEdited: what was written so is known afterwards, without what the kernel did not take, and
// logged. What was read is written as a whole.
func TestAnOrderedChainIsEdited(t *testing.T) {
	n := newNode(t)
	list := n.Chains.AddList("WEAVE-NPC-A-x", "a list", policy.Admin, base, npc.Ingress)
	set := func(ports ...int) {
		rules := map[string]dataplane.ChainRule{}
		for i, p := range ports {
			rules[fmt.Sprintf("-p tcp --dport %d", p)] = dataplane.ChainRule{Target: "-j ACCEPT", Order: i, Owners: map[*dataplane.Owner]int{n.policy: p}}
		}
		list.SetRules(rules)
	}
	o := dataplane.Options{Editing: iptables.Editing{Share: 2, Probe: "WEAVE-NPC-TRY"}}
	set(1, 2, 3, 4)
	n.carryOutWith(o)
	set(1, 9, 2, 3, 5)
	if got := n.carryOutWith(o).LogValue().String(); got != "[chains_edited=1 rules_deleted=1 rules_inserted=2]" {
		t.Errorf("edited: %s", got)
	}
	n.reconciled()
	set(8, 1, 9, 2, 3, 7)
	tx := n.Plan(o)
	isEight := func(r iptables.Rule) bool { return strings.HasSuffix(r.Match, " 8") }
	r := tx.Taken()
	r.RejectedRules = map[string]string{tx.Rules.Edits[0].Hunks[0].Insert[0].ID(): "no such match"}
	taken := tx
	taken.Rules = tx.Rules.Without(isEight)
	if err := n.kernel.Apply(taken); err != nil {
		t.Fatal(err)
	}
	n.Commit(tx, r)
	n.reconciled()
	_, seen := n.kernel.Read()
	if drift := n.Chains.Drift(seen); len(drift) > 0 {
		t.Errorf("drift: %q", drift)
	}
	n.load()
	n.reconciled()
	set(1, 9, 2, 3, 6)
	if got := n.carryOutWith(o).LogValue().String(); got != "[chains_replaced=1]" {
		t.Errorf("after it was read: %s", got)
	}
}
