package failclosed

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
)

// TestRecall shows the addresses that are closed after a restart, because their pods were isolated before and deleted
// meanwhile.
func TestRecall(t *testing.T) {
	const web = "in/web {node: node1, addrs: [10.32.1.2]}"
	for _, c := range []struct {
		name          string
		before, after []string
		to, from      string // dropped on ingress and on egress
	}{
		{"still_there", []string{web}, []string{web}, "fe80::/10: link-local is no way around policies", ""},
		{"gone", []string{web}, nil, "10.32.1.2: in/web deleted", ""},
		{"gone_of_both_families", []string{"both/web {node: node1, addrs: [10.32.1.2, 'fd32:1::2']}"}, nil,
			"10.32.1.2: both/web deleted\n fd32:1::2: both/web deleted", "10.32.1.2: both/web deleted\n fd32:1::2: both/web deleted"},
		{"gone_and_was_free", []string{"shop/web {node: node1, addrs: [10.32.1.2]}"}, nil, "", ""},
		{"its_address_is_another_pods", []string{web}, []string{"shop/x {node: node1, addrs: [10.32.1.2]}"}, "", ""},
		{"it_has_finished", []string{web}, []string{"in/web {node: node1, finished: true}"}, "", ""},
		{"it_has_another_address", []string{web}, []string{"in/web {node: node1, addrs: [10.32.1.3]}"},
			"fe80::/10: link-local is no way around policies", ""},
		{"another_of_its_name", []string{web}, []string{"in/web {uid: another, node: node1, addrs: [10.32.1.3]}"}, `
			10.32.1.2: in/web deleted
			fe80::/10: link-local is no way around policies`, ""},
		{"one_of_its_name_elsewhere", []string{web}, []string{"in/web {node: node2, addrs: [10.32.2.3]}"}, "10.32.1.2: in/web deleted", ""},
		{"gone_before_the_restart", []string{web, "vanish in/web"}, nil, "10.32.1.2: in/web deleted", ""},
		{"gone_before_the_restart_and_its_address_is_another_pods", []string{web, "vanish in/web"}, []string{"shop/x {node: node1, addrs: [10.32.1.2]}"},
			"", ""},
		{"gone_before_the_restart_on_egress", []string{"out/web {node: node1, addrs: [10.32.1.2]}", "vanish out/web"}, nil, "",
			"10.32.1.2: out/web deleted"},
		{"closed_for_another_reason", []string{"in/new {node: node1}"}, nil, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t, nil, c.before...).restart(c.after...)
			w.recall()
			w.drops(npc.Ingress, c.to)
			w.drops(npc.Egress, c.from)
		})
	}
}

// TestWhenDeletedPodsAreRecalled shows that this waits until everything is known, and is done once.
func TestWhenDeletedPodsAreRecalled(t *testing.T) {
	const web, closed = "in/web {node: node1, addrs: [10.32.1.2]}", "10.32.1.2: in/web deleted"
	t.Run("synced", func(t *testing.T) {
		w := newHarness(t, nil, web).restart()
		w.facts.Synced = false
		w.recall()
		w.facts.Synced = true
		w.Update(w.facts)
		w.drops(npc.Ingress, "")
		w.recall()
		w.drops(npc.Ingress, closed)
	})
	t.Run("nothing_missing", func(t *testing.T) {
		w := newHarness(t, nil, web).restart()
		w.facts.Missing = npc.NodeMissing
		w.recall()
		w.drops(npc.Ingress, "")
		w.facts.Missing = npc.NothingMissing
		w.recall()
		w.drops(npc.Ingress, closed)
	})
	t.Run("the_kernel_is_read", func(t *testing.T) {
		w := newHarness(t, nil)
		w.recall()
		if w.deletedPods.recalled != [len(npc.Families)]bool{} {
			t.Error("a kernel that was not read was asked")
		}
	})
	t.Run("once", func(t *testing.T) {
		w := newHarness(t, nil, web).restart()
		w.recall()
		w.facts.Now = w.facts.Now.Add(deletedFor - time.Second)
		w.recall()
		w.drops(npc.Ingress, closed)
		w.facts.Now = w.facts.Now.Add(time.Second)
		w.recall()
		w.drops(npc.Ingress, "")
	})
}

// TestPodsThatAreHeld shows that pods that the kernel has and no object accounts for close the fail-closed filter while
// the node is missing, and that their isolation is remembered if they vanish.
func TestPodsThatAreHeld(t *testing.T) {
	w := newHarness(t, nil, "both/web {node: node1, addrs: [10.32.1.2]}").restart()
	w.facts.Missing = npc.NodeMissing
	w.do()
	w.drops(npc.Ingress, "")
	for f, table := range w.tables {
		table.Hold(func(netip.Addr) (p dataplane.Pod, ok bool) { return p, false }, w.allowed[f])
	}
	w.do()
	w.drops(npc.Ingress, "10.32.1.0/24: not all objects could be read\n fd32:1::/64: not all objects could be read")
	w.do("shop/web {node: node1}")
	w.Vanish(netip.MustParseAddr("10.32.1.2"), w.pod("shop/web"), isolation(w.pod("shop/web")), w.facts.Now)
	for _, table := range w.tables {
		table.Release()
	}
	w.facts.Missing = npc.NothingMissing
	w.do()
	for _, d := range npc.Directions {
		w.drops(d, "10.32.1.2: shop/web deleted")
	}
}

// TestARecordIsRead shows that what is recorded of a pod's address comes back, and what is not recorded is not.
func TestARecordIsRead(t *testing.T) {
	const pod = "kp4yu2nuys shop/db"
	for text, isolated := range map[string][len(npc.Directions)]bool{
		pod + " isolated:no":             {},
		pod + " isolated:ingress":        {npc.Ingress: true},
		pod + " isolated:egress":         {npc.Egress: true},
		pod + " isolated:ingress-egress": {true, true},
	} {
		if got := record(pod, isolated); got != text {
			t.Errorf("%v is recorded as %q", isolated, got)
		}
		if comment, got, ok := parseRecord(text); comment != pod || got != isolated || !ok {
			t.Errorf("%q is read as %q, %v, %t", text, comment, got, ok)
		}
	}
	if comment, _, ok := parseRecord(pod); comment != pod || ok {
		t.Errorf("%q is read as a record", pod)
	}
}
