package dataplane_test

import (
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// foreignSet is a set of another program with the name of the peers.
func foreignSet(references uint32) ipset.Listing {
	return ipset.Listing{Header: ipset.Header{Set: ipset.Set{Name: peersName, Type: ipset.HashNet, Family: ipset.IPv4}, References: references}}
}

// TestWhatIsInTheWay: a set that cannot be the desired one is destroyed first, or left alone if it is in use.
func TestWhatIsInTheWay(t *testing.T) {
	alias := naming.Set(npc.IPv4, "instead of", peersName)
	list := naming.Set(npc.IPv4, "list")

	t.Run("it_is_not_in_use", func(t *testing.T) {
		n := newNode(t)
		n.LoadSets([]ipset.Listing{foreignSet(0)})
		if inTheWay := n.ResolveNames(false); len(inTheWay) > 0 {
			t.Errorf("renamed for %q", inTheWay)
		}
		tx := n.Plan(dataplane.Options{})
		if len(tx.Mismatched) != 1 || tx.Mismatched[0] != "set "+peersName+" (pods with role=client) is a hash:net, not a hash:ip" {
			t.Errorf("in the way: %q", tx.Mismatched)
		}
		n.expect(tx.String(), "+destroy "+peersName, "+create "+peersName+" hash:ip")
		n.Commit(tx, tx.Taken())
		n.reconciled()
	})
	t.Run("it_is_in_use", func(t *testing.T) {
		n := newNode(t)
		n.peers.Add(ipset.Addr(client), ipset.Attr{Comment: "shop/client"})
		n.Sets.Add(list, ipset.ListSet, "peers").Add(ipset.Member(peersName), ipset.Attr{Comment: "shop"})
		n.Chains.SetBase(base)
		n.LoadSets([]ipset.Listing{foreignSet(1)})
		n.expect(n.Plan(dataplane.Options{}).String(), "-create "+peersName)
		if inTheWay := n.ResolveNames(false); len(inTheWay) != 1 {
			t.Errorf("in the way: %q", inTheWay)
		}
		tx := n.Plan(dataplane.Options{})
		n.expect(tx.String(), "+create "+alias+" hash:ip", "+add "+alias+" 10.32.1.3", "+"+naming.Match(alias, "src"), "-"+peersName, "+add "+list+" "+alias)
		n.Commit(tx, tx.Taken())
		n.reconciled()
		if n.Sets.Add(peersName, ipset.HashIP, "pods with role=client") != n.peers || n.peers.Name != alias || n.peers.Key() != peersName {
			t.Errorf("%s is another set", n.peers.Name)
		}
		if !n.Garbage() {
			t.Error("there is nothing to do later")
		}
		// The kernel reports that the wrong one is gone.
		n.ResolveNames(true)
		for range 2 {
			tx = n.Plan(dataplane.Options{CollectGarbage: true})
			n.Commit(tx, tx.Taken())
		}
		n.ResolveNames(true)
		tx = n.Plan(dataplane.Options{})
		n.expect(tx.String(), "+create "+peersName+" hash:ip", "+add "+peersName+" 10.32.1.3", "+"+fromPeers, "+add "+list+" "+peersName)
		n.Commit(tx, tx.Taken())
		if n.peers.Name != peersName {
			t.Errorf("%s has not its own name back", n.peers.Name)
		}
	})
	t.Run("it_is_dropped_by_its_other_name", func(t *testing.T) {
		n := newNode(t)
		n.LoadSets([]ipset.Listing{foreignSet(1)})
		n.ResolveNames(false)
		n.rules.Disown(n.policy, fromPeers)
		n.peers.Drop()
		if left := n.Leftovers(); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	t.Run("what_differs", func(t *testing.T) {
		n := newNode(t)
		for want, l := range map[string]ipset.Header{
			"is of family": {Set: ipset.Set{Name: peersName, Type: ipset.HashIP, Family: ipset.IPv6}},
			"takes 9 members at most": {Set: ipset.Set{Name: peersName, Type: ipset.HashIP, Family: ipset.IPv4,
				Size: 9}},
			"has other options than ours: counters": {Set: n.peers.Set, Other: "counters"},
			"has a timeout of 7 s, not 0 s": {Set: ipset.Set{Name: peersName, Type: ipset.HashIP, Family: ipset.IPv4,
				Timeout: 7}},
		} {
			n.LoadSets([]ipset.Listing{{Header: l}})
			for _, text := range n.Plan(dataplane.Options{}).Mismatched {
				n.expect(text, "+"+want)
			}
			drift := n.Sets.Drift([]ipset.Header{l})
			if len(drift) != 1 {
				t.Errorf("%s: drift is %q", want, drift)
			}
			n.expect(drift[0], "+"+want)
		}
	})
}
