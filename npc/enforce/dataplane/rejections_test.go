package dataplane_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// TestAPolicyOfWhichTooManyRulesAreRejected lacks all rules that only it asks for.
func TestAPolicyOfWhichTooManyRulesAreRejected(t *testing.T) {
	const shared = "-p tcp --dport 9"
	// rejected returns a node whose kernel rejected so many rules of the policy, which has one more, and one with
	// another.
	rejected := func(t *testing.T, rules int) *node {
		n := newNode(t)
		for port := range rules {
			n.rules.Own(n.policy, fmt.Sprintf("-p udp --dport %d", port), port+2)
		}
		n.rules.Own(n.policy, shared, 9)
		n.rules.Own(&dataplane.Owner{Namespace: "shop", Name: "other"}, shared, 1)
		n.Retry() // there is nothing yet
		tx := n.Plan(dataplane.Options{})
		r := tx.Taken()
		_, r.RejectedRules = without(tx, func(r iptables.Rule) bool { return strings.HasPrefix(r.Match, "-p udp") })
		if _, others := n.Commit(tx, r); len(r.RejectedRules) != rules || len(others) > 0 || !n.Rejecting() || !n.Stale() {
			t.Errorf("%d rules are rejected, and cannot be left out: %q", len(r.RejectedRules), others)
		}
		for o, why := range n.Rejected() {
			if o != n.policy || why != "no such match" && rules < 5 {
				t.Errorf("%s lacks something: %s", o, why)
			}
			break
		}
		return n
	}
	t.Run("few", func(t *testing.T) {
		n := rejected(t, 4)
		n.reconciled()
		n.Retry()
		n.expect(n.Plan(dataplane.Options{}).String(), "+--dport 0", "+--dport 3", "-"+fromPeers)
	})
	t.Run("many", func(t *testing.T) {
		n := rejected(t, 5)
		tx := n.Plan(dataplane.Options{})
		n.expect(tx.String(), "+"+shared, "-"+fromPeers, "--p udp")
		n.Commit(tx, tx.Taken())
		n.reconciled()
		n.Retry()
		n.expect(n.Plan(dataplane.Options{}).String(), "+--dport 0", "+--dport 4", "+"+fromPeers, "-"+shared)
	})
}

// TestWhatDoesNotReport: packets are dropped all the same if rules that report them are rejected.
func TestWhatDoesNotReport(t *testing.T) {
	n := newNode(t)
	tx := n.Plan(dataplane.Options{})
	r := tx.Taken()
	_, r.RejectedRules = without(tx, func(r iptables.Rule) bool { return strings.HasPrefix(r.Target, "-j NFLOG") })
	if why := n.LoggingRejected(); why != "" {
		t.Errorf("it is not reported: %s", why)
	}
	if _, rules := n.Commit(tx, r); len(rules) > 0 || len(r.RejectedRules) == 0 {
		t.Errorf("cannot be left out: %q of %q", rules, r.RejectedRules)
	}
	if why := n.LoggingRejected(); why != "no such match" {
		t.Errorf("it is not reported because %q", why)
	}
	n.reconciled()
}

// TestWhatNamesARejectedSet: lists do without it, and sets that every node has cannot be done without.
func TestWhatNamesARejectedSet(t *testing.T) {
	n := newNode(t)
	list := n.Sets.Add(naming.Set(npc.IPv4, "list"), ipset.ListSet, "peers")
	list.Add(ipset.Member(peersName), ipset.Attr{})
	n.carryOut()
	n.peers.Add(ipset.Addr(client), ipset.Attr{Comment: "shop/client"})
	list.Add(ipset.Member(peersName), ipset.Attr{Comment: "again"})
	tx := n.Plan(dataplane.Options{})
	r := tx.Taken()
	r.RejectedSets = map[string]string{peersName: "no room", "weave-local-pods": "no room", "weave-unknown": "no room"}
	if sets, _ := n.Commit(tx, r); len(sets) != 2 || n.peers.Rejected() != "no room" {
		t.Errorf("cannot be left out: %q", sets)
	}
	n.expect(n.Plan(dataplane.Options{}).String(), "-add "+list.Name, "-add "+peersName)
	n.Retry()
	n.expect(n.Plan(dataplane.Options{}).String(), "+add "+list.Name, "+add "+peersName)
}
