package dataplane_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
)

// TestPlanChangesNothing: a transaction that is not executed is planned again, word for word.
func TestPlanChangesNothing(t *testing.T) {
	n := newNode(t)
	for what, change := range map[string]func(){
		"start":            func() {},
		"a peer comes":     func() { n.peers.Add(ipset.Addr(client), ipset.Attr{Comment: "shop/client"}) },
		"a policy goes":    func() { n.rules.Disown(n.policy, fromPeers) },
		"a set is dropped": func() { n.peers.Drop() },
	} {
		change()
		first := n.Plan(dataplane.Options{}).String()
		if again := n.Plan(dataplane.Options{}).String(); again != first {
			t.Errorf("%s: planned first\n%s\nand then\n%s", what, first, again)
		}
	}
}

// TestCommitTakesOverWhatTheKernelTook, and the rest is planned again.
func TestCommitTakesOverWhatTheKernelTook(t *testing.T) {
	t.Run("everything", func(t *testing.T) {
		n := newNode(t)
		n.carryOut()
		n.reconciled()
	})
	t.Run("nothing_that_needs_rules_if_these_were_not_written", func(t *testing.T) {
		n := newNode(t)
		n.carryOut()
		n.rules.Own(n.policy, "-p tcp", 2)
		n.shard.Remove(ipset.Addr(web))
		tx := n.Plan(dataplane.Options{})
		if tx.Rules.Empty() || len(tx.DeleteDispatch) == 0 {
			t.Fatalf("planned:\n%s", tx)
		}
		n.Commit(tx, dataplane.Result{Asked: true})
		if again := n.Plan(dataplane.Options{}); again.String() != tx.String() {
			t.Errorf("planned first\n%s\nand then\n%s", tx, again)
		}
	})
	t.Run("not_the_members_of_a_rejected_set_nor_its_rules", func(t *testing.T) {
		n := newNode(t)
		n.peers.Add(ipset.Addr(client), ipset.Attr{Comment: "shop/client"})
		tx := n.Plan(dataplane.Options{})
		r := tx.Taken()
		r.RejectedSets = map[string]string{peersName: "no room"}
		r.Written[0].Replace = slices.Clone(r.Written[0].Replace)
		for i, c := range r.Written[0].Replace {
			if c.Name == shopChain {
				r.Written[0].Replace[i].Rules = nil
			}
		}
		if sets, _ := n.Commit(tx, r); len(sets) > 0 {
			t.Errorf("cannot be left out: %q", sets)
		}
		n.reconciled()
		for owner, why := range n.Rejected() {
			if owner != n.policy || why != "no room" {
				t.Errorf("%s lacks something: %s", owner, why)
			}
		}
		n.Retry()
		if text := n.Plan(dataplane.Options{}).String(); !strings.Contains(text, "create "+peersName+" ") ||
			!strings.Contains(text, "add "+peersName+" 10.32.1.3") || !strings.Contains(text, fromPeers) {
			t.Errorf("it is tried again by\n%s", text)
		}
	})
	t.Run("not_a_rejected_rule", func(t *testing.T) {
		n := newNode(t)
		tx := n.Plan(dataplane.Options{})
		r := tx.Taken()
		_, r.RejectedRules = without(tx, func(r iptables.Rule) bool { return strings.Contains(r.Match, peersName) })
		if _, rules := n.Commit(tx, r); len(rules) > 0 {
			t.Errorf("cannot be left out: %q", rules)
		}
		n.reconciled()
		n.Retry()
		if text := n.Plan(dataplane.Options{}).String(); !strings.Contains(text, fromPeers) {
			t.Errorf("it is tried again by\n%s", text)
		}
	})
	t.Run("a_rule_of_the_base_cannot_be_left_out", func(t *testing.T) {
		n := newNode(t)
		tx := n.Plan(dataplane.Options{})
		r := tx.Taken()
		_, r.RejectedRules = without(tx, func(r iptables.Rule) bool { return strings.Contains(r.Match, shopPods) })
		if _, rules := n.Commit(tx, r); len(rules) != 1 {
			t.Errorf("cannot be left out: %q", rules)
		}
	})
	t.Run("a_set_that_is_in_use_is_destroyed_later", func(t *testing.T) {
		n := newNode(t)
		n.carryOut()
		n.rules.Disown(n.policy, fromPeers)
		n.peers.Drop()
		var destroys int
		for range 5 {
			tx := n.Plan(dataplane.Options{CollectGarbage: true})
			if !strings.Contains(tx.String(), "destroy "+peersName) {
				n.Commit(tx, tx.Taken())
				continue
			}
			if destroys++; destroys == 2 {
				n.Commit(tx, tx.Taken())
				break
			}
			r := tx.Taken()
			r.InUse = []ipset.Set{{Name: peersName, Type: ipset.HashIP, Family: ipset.IPv4}}
			n.Commit(tx, r)
		}
		if left := n.Leftovers(); destroys != 2 || len(left) > 0 || n.Garbage() {
			t.Errorf("%d tries; left: %q", destroys, left)
		}
	})
	t.Run("what_was_changed_since_the_plan_is_looked_at_again", func(t *testing.T) {
		n := newNode(t)
		tx := n.Plan(dataplane.Options{})
		n.peers.Add(ipset.Addr(client), ipset.Attr{Comment: "shop/client"})
		n.rules.Own(n.policy, "-p tcp", 2)
		n.Commit(tx, tx.Taken())
		if text := n.Plan(dataplane.Options{}).String(); !strings.Contains(text, "add "+peersName+" 10.32.1.3") || !strings.Contains(text, "-p tcp") {
			t.Errorf("planned:\n%s", text)
		}
	})
	t.Run("what_was_dropped_since_the_plan_is_removed", dropSinceThePlan)
}

// dropSinceThePlan drops a set and disowns a rule between the plan and the commit.
func dropSinceThePlan(t *testing.T) {
	n := newNode(t)
	tx := n.Plan(dataplane.Options{})
	n.rules.Disown(n.policy, fromPeers)
	n.peers.Drop()
	if err := n.kernel.Apply(tx); err != nil {
		t.Fatal(err)
	}
	n.Commit(tx, tx.Taken())
	for range 3 {
		tx := n.Plan(dataplane.Options{CollectGarbage: true})
		if err := n.kernel.Apply(tx); err != nil {
			t.Fatal(err)
		}
		n.Commit(tx, tx.Taken())
	}
	if n.kernel.Sets[peersName] != nil || len(n.Leftovers()) > 0 {
		t.Errorf("it is left: %q", n.Leftovers())
	}
}
