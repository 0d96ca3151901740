package npc_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
)

// TestS75_APodEventIsInTheThirdTransaction at the latest, the one under way counted, though a policy is edited whenever there is time to.
func TestS75_APodEventIsInTheThirdTransaction(t *testing.T) {
	for _, inFlight := range []bool{false, true} {
		t.Run(fmt.Sprintf("in_flight=%t", inFlight), func(t *testing.T) {
			w := newOrderWorld(t)
			edits := 0
			edit := func() {
				edits++
				w.policy("a/web", fmt.Sprintf(`{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}],
					ports: [{port: 80}, {port: %d}]}]}`, 1000+edits%100))
				w.policy("b/other", fmt.Sprintf(`{podSelector: {}, ingress: [{ports: [{port: %d}]}]}`, 1000+edits%100))
			}
			// transaction carries one out, while which policies are edited, and reports whether there is another.
			transaction := func(meanwhile func()) bool {
				txs := w.model.Plan(false)
				edit()
				meanwhile()
				for f, tx := range txs {
					if err := w.kernels[f].Apply(tx); err != nil {
						t.Fatal(err)
					}
				}
				edit()
				return w.model.Resume()
			}
			for i := range 20 {
				edit()
				last := fmt.Sprint(10 + i)
				add := func() { w.pod("a/new"+last, "10.32.1."+last+",fd32:1::"+last, "app=web") }
				enforced := func() bool {
					return w.holds("10.32.1.5", "10.32.1."+last, false) && w.holds("10.32.1.4", "10.32.1."+last, true)
				}
				meanwhile, took := func() {}, 0
				if inFlight {
					meanwhile = add
				} else {
					add()
				}
				for ; took == 0 || !enforced(); took++ {
					if transaction(meanwhile); took == 3 {
						t.Fatalf("pod %d is not enforced after %d transactions", i, took)
					}
					meanwhile = func() {}
				}
			}
		})
	}
}

// TestAChangeWaitsUntilItIsCarriedOut although a sync ends after it has left the queue, with all that was planned carried out.
func TestAChangeWaitsUntilItIsCarriedOut(t *testing.T) {
	w := newOrderWorld(t)
	w.again(false)
	w.model.Held()
	w.policy("a/web", `{podSelector: {matchLabels: {app: web}}}`)
	w.model.Plan(false)
	w.pod("a/new", "10.32.1.10,fd32:1::10", "app=web") // both while the plan is carried out
	w.policy("b/other", `{podSelector: {}, ingress: [{ports: [{port: 80}]}]}`)
	for range 2 { // one after the other is taken
		if !w.model.Resume() {
			t.Fatal("nothing is left")
		}
		w.model.Held()
		if w.model.Waiting() == 0 {
			t.Error("no change waits, though one was not planned yet")
		}
		w.model.Plan(false)
	}
	if w.model.Resume() {
		t.Error("something is left")
	}
	w.model.Held()
	if w.model.Waiting() != 0 {
		t.Error("a change waits that was carried out")
	}
}

// TestPoliciesAreEditedAllTheTime, and all the same others' pods are enforced, what others change is repaired, and what is left over goes.
func TestPoliciesAreEditedAllTheTime(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.well()
		var edits atomic.Int64
		edit := func() { s.model.Model.SetPolicy(manyBlocks("edited", 2, int(edits.Add(1)))) }
		s.pod("busy/pod", "10.32.1.50,fd32:1::50", "app=busy")
		s.live.MakeFaults(npc.IPv4).Apply = func(ops []ipset.Op, apply func([]ipset.Op) error) error {
			edit() // there is always one that came meanwhile
			return apply(ops)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.live.Run(ctx, false) }()
		defer func() {
			cancel()
			<-ended
		}()
		edit()
		command(t, "iptables-"+string(b), "-w", "-F", "WEAVE-NPC-DEFAULT")
		eventually(t, "repairing", func() bool { return s.log.count("somebody changed what is ours") > 0 })
		eventually(t, "having repaired", func() bool {
			return strings.Contains(command(t, "iptables-"+string(b), "-w", "-S", "WEAVE-NPC-DEFAULT"), "no policy isolates it")
		})
		if why := s.live.Ready(); why != "" {
			t.Errorf("not ready: %s", why)
		}
	})
}
