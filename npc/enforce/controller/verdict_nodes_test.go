package controller_test

import (
	"testing"

	"github.com/weave-npc/weave-npc/npc"
)

// TestVerdictsOfPeersByNodes checks the peers that nodes select, as nodes are relabelled, get other addresses and are
// deleted.
func TestVerdictsOfPeersByNodes(t *testing.T) {
	outside := func(w *harness, i int) npc.Node {
		return npc.Node{Name: "far", UID: "far", Labels: map[string]string{"zone": "x"}, Addrs: w.Addrs["outside"][i : i+1]}
	}
	verdicts(t, []verdictCase{
		{"S84_nodes_are_matched_by_all_their_addresses_in_their_family", func(w *harness) {
			w.ClusterPolicy("p", `{tier: Admin, priority: 1, subject: {namespaces: {matchLabels: {team: a}}}, egress: [
				{action: Deny, to: [{nodes: {matchLabels: {zone: x}}}], protocols: [{tcp: {destinationPort: {number: 80}}}]}]}`)
			n := outside(w, 0)
			n.Addrs = w.Addrs["outside"]
			w.Model.SetNode(n)
			w.Model.SetNode(npc.Node{Name: "other", UID: "other", Labels: map[string]string{"zone": "y"}, Addrs: w.Addrs["b/client"]})
			w.Sync()
			w.Expect(`
				a/web > outside tcp:80 = no
				a/web > outside tcp:81 = yes
				b/client > outside tcp:80 = yes
				outside > a/web tcp:80 = yes
				a/web > b/client tcp:80 = yes`)
			w.Model.SetNode(outside(w, 1)) // IPv6 alone
			w.Again(false)
			w.Expect("10.32.1.2 > 198.51.100.7 tcp:80 = yes\n fd32:1::2 > 2001:db8::7 tcp:80 = no")
			w.Model.SetNode(npc.Node{Name: "other", UID: "other", Labels: map[string]string{"zone": "x"}, Addrs: w.Addrs["b/client"]})
			w.Model.DeleteNode("far", "another")
			w.Again(false)
			w.Expect("10.32.1.2 > 198.51.100.7 tcp:80 = yes\n fd32:1::2 > 2001:db8::7 tcp:80 = no\n a/web > b/client tcp:80 = no")
			w.Model.DeleteNode("far", "far")
			w.Model.DeleteNode("other", "")
			w.Again(false)
			w.Expect("a/web > outside tcp:80 = yes\n a/web > b/client tcp:80 = yes")
		}},
		{"S84_nodes_accepted_before_all_else_is_denied", func(w *harness) {
			w.Model.SetNode(outside(w, 0))
			w.ClusterPolicy("p", `{tier: Baseline, priority: 1, subject: {namespaces: {}}, egress: [{action: Accept, to: [{nodes: {}}]},
				{action: Deny, to: [{networks: [0.0.0.0/0, "::/0"]}]}]}`)
			w.Sync()
			w.Expect("10.32.1.2 > 198.51.100.7 tcp:80 = yes\n fd32:1::2 > 2001:db8::7 tcp:80 = no\n a/web > b/other tcp:80 = no")
			w.Model.SetNode(outside(w, 1))
			w.Again(false)
			w.Expect("10.32.1.2 > 198.51.100.7 tcp:80 = no\n fd32:1::2 > 2001:db8::7 tcp:80 = yes")
		}},
	})
}

// TestS93_NodesAreThereBeforeThePolicyThatNamesThem, though both come while a plan is carried out: in between, the
// policy would be enforced as if there were no nodes.
func TestS93_NodesAreThereBeforeThePolicyThatNamesThem(t *testing.T) {
	w := newOrderHarness(t)
	accepted := func() bool { return w.Holds("10.32.1.2", "198.51.100.7", true) }
	apply := func(meanwhile func()) {
		txs := w.Plan(false)
		meanwhile()
		for f, tx := range txs {
			w.Kernels[f].AfterStep = func() {
				if !accepted() {
					t.Errorf("dropped in between")
				}
			}
			if err := w.Kernels[f].Apply(tx); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.Pod("a/new", "10.32.1.10,fd32:1::10", "app=web")
	apply(func() {
		w.Model.SetNode(npc.Node{Name: "far", UID: "far", Addrs: w.Addrs["outside"]})
		w.ClusterPolicy("p", `{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Accept, to: [{nodes: {}}]},
			{action: Deny, to: [{networks: [0.0.0.0/0, "::/0"]}]}]}`)
	})
	for w.Model.Resume() {
		apply(func() {})
	}
	if !accepted() || w.Holds("10.32.1.2", "198.51.100.8", true) {
		t.Error("the policy is not enforced")
	}
}
