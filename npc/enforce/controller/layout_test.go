package controller_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/test/paper"
)

// newKernel is a kernel that another version left, with the addresses of the two pods in it.
type newKernel struct {
	*paper.Kernel
	web, client netip.Addr
	v6          string
}

const ourLayout, newerLayout = "WEAVE-NPC-LAYOUT-1", "WEAVE-NPC-LAYOUT-2"

func populateLayout(w *harness) {
	w.Namespace("a", "team=a")
	w.Pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
	w.Pod("a/client", "10.32.1.3,fd32:1::3", "app=client")
	w.Policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}]}]}`)
}

const layoutVerdicts = "a/client > a/web tcp:80 = yes\n a/client > a/web tcp:81 = no\n outside > a/web tcp:80 = no\n outside > a/client tcp:80 = yes"

// TestLayouts: a start finds what another version left, and there is no gap at any step.
func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		name string
		// leave makes the kernel's chains and sets those of another version.
		leave func(k *newKernel)
		// changes is set if anything but a marker has to be written.
		changes bool
	}{
		{"the same", func(*newKernel) {}, false},
		{"older, without a marker", func(k *newKernel) { delete(k.Chains, ourLayout) }, false},
		{"newer", func(k *newKernel) {
			delete(k.Chains, ourLayout)
			k.Chains[newerLayout] = nil
		}, true},
		{"newer, with sets of another meaning", func(k *newKernel) {
			delete(k.Chains, ourLayout)
			k.Chains[newerLayout] = nil
			// The set of pods that are not isolated holds the isolated ones, and the only rule about it matches the reverse.
			k.Chains["WEAVE-NPC-FORWARD"] = slices.DeleteFunc(k.Chains["WEAVE-NPC-FORWARD"], ofUnrestricted)
			set := k.Sets["weave-default-allow-ingress"+k.v6]
			web, client := ipset.Addr(k.web), ipset.Addr(k.client)
			set.Members[web] = set.Members[client]
			delete(set.Members, client)
			k.Chains["WEAVE-NPC-DEFAULT"] = []string{
				"-m set --match-set weave-default-allow-ingress" + k.v6 + " dst -g WEAVE-NPC-INGRESS", "-j ACCEPT"}
			k.Chains["WEAVE-NPC-FUTURE"] = []string{"-j RETURN"}
		}, true},
		{"both", func(k *newKernel) { k.Chains[newerLayout] = nil }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newHarness(t)
			populateLayout(w)
			w.Sync()
			w.CollectGarbage()
			for f, k := range w.Kernels {
				c.leave(&newKernel{k, w.Addrs["a/web"][f], w.Addrs["a/client"][f], [...]string{"", "-v6"}[f]})
			}
			next := newHarness(t)
			next.Kernels = w.Kernels
			populateLayout(next)
			if c.name != "newer, with sets of another meaning" {
				next.Expect(layoutVerdicts)
			}
			for _, k := range next.Kernels {
				k.AfterStep = func() {
					if c.name != "newer, with sets of another meaning" || len(k.Chains["WEAVE-NPC-DEFAULT"]) == 2 {
						next.Expect(layoutVerdicts)
					}
				}
			}
			next.Load()
			if found := next.Model.ForeignLayout(npc.IPv4); (found == "2") != c.changes {
				t.Errorf("found layout %q", found)
			}
			next.Sync()
			text := next.Applied()
			if written := strings.Contains(text, "-A WEAVE-NPC-DEFAULT"); written != c.changes {
				t.Errorf("written again: %t:\n%s", written, text)
			}
			for range 4 {
				next.CollectGarbage()
			}
			next.Expect(layoutVerdicts)
			for _, k := range next.Kernels {
				for _, name := range []string{newerLayout, "WEAVE-NPC-FUTURE"} {
					if _, there := k.Chains[name]; there {
						t.Errorf("%s is left", name)
					}
				}
				if _, there := k.Chains[ourLayout]; !there {
					t.Error("our marker is missing")
				}
			}
			next.Load()
			next.Applied()
			next.CollectGarbage()
			if text := next.Applied(); text != "" {
				t.Errorf("there is still to do:\n%s", text)
			}
		})
	}
}

// TestS63_AnUpgradeThatWasKilledCutsNothing: a start that finds sets under the names that they got because theirs were
// taken, and chains of another version yet, takes no address for another pod's.
func TestS63_AnUpgradeThatWasKilledCutsNothing(t *testing.T) {
	killedAt := func(t *testing.T, step int) (steps int) {
		w := newHarness(t)
		populateLayout(w)
		w.Sync()
		w.CollectGarbage()
		for _, k := range w.Kernels {
			delete(k.Chains, ourLayout)
			k.Chains[newerLayout] = nil
		}
		first := successor(w)
		first.Load()
		populateLayout(first)
		first.Model.SetSynced()
		for f, tx := range first.Plan(false) {
			ops := slices.Concat(tx.DeleteStale, tx.AddMembers)
			steps = max(steps, len(ops))
			var cut dataplane.Transaction
			cut.Family, cut.AddMembers = tx.Family, ops[:min(step, len(ops))]
			if err := first.Kernels[f].Apply(cut); err != nil {
				t.Fatal(err)
			}
		}
		second := successor(w)
		second.Addrs = first.Addrs
		second.Load()
		populateLayout(second)
		second.Sync()
		for _, k := range second.Kernels {
			if len(k.Forgotten) > 0 {
				t.Errorf("killed after step %d: flows of %v are forgotten", step, k.Forgotten)
			}
		}
		second.Expect(layoutVerdicts)
		return steps
	}
	for step, steps := 0, 1; step <= steps; step++ {
		steps = killedAt(t, step)
	}
}
