package npc_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/test/paper"
)

// newKernel is a kernel that another version left, with the addresses of the two pods in it.
type newKernel struct {
	*paper.Kernel
	web, client netip.Addr
	v6          string
}

const ourLayout, newerLayout = "WEAVE-NPC-LAYOUT-1", "WEAVE-NPC-LAYOUT-2"

func populateLayout(w *world) {
	w.namespace("a", "team=a")
	w.pod("a/web", "10.32.1.2,fd32:1::2", "app=web")
	w.pod("a/client", "10.32.1.3,fd32:1::3", "app=client")
	w.policy("a/web", `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}]}]}`)
}

const layoutVerdicts = "a/client > a/web tcp:80 = yes\n a/client > a/web tcp:81 = no\n outside > a/web tcp:80 = no\n outside > a/client tcp:80 = yes"

// TestLayouts: a start finds what another version left, and there is no gap at any step.
func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		name string
		// leave makes the kernel's chains and sets those of another version.
		leave func(k *newKernel)
		// changes says whether anything has to be written but a marker.
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
			// Who is isolated is in the set that says who is not, and the rule says the reverse.
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
			w := newWorld(t)
			populateLayout(w)
			w.sync()
			w.tidyUp()
			for f, k := range w.kernels {
				c.leave(&newKernel{k, w.addrs["a/web"][f], w.addrs["a/client"][f], [...]string{"", "-v6"}[f]})
			}
			next := newWorld(t)
			next.kernels = w.kernels
			populateLayout(next)
			if c.name != "newer, with sets of another meaning" {
				next.expect(layoutVerdicts)
			}
			for _, k := range next.kernels {
				k.AfterStep = func() {
					if c.name != "newer, with sets of another meaning" || len(k.Chains["WEAVE-NPC-DEFAULT"]) == 2 {
						next.expect(layoutVerdicts)
					}
				}
			}
			next.adopt()
			if found := next.model.FoundLayout(npc.IPv4); (found == "2") != c.changes {
				t.Errorf("found layout %q", found)
			}
			next.sync()
			text := next.taken()
			if written := strings.Contains(text, "-A WEAVE-NPC-DEFAULT"); written != c.changes {
				t.Errorf("written anew: %t:\n%s", written, text)
			}
			for range 4 {
				next.tidyUp()
			}
			next.expect(layoutVerdicts)
			for _, k := range next.kernels {
				for _, name := range []string{newerLayout, "WEAVE-NPC-FUTURE"} {
					if _, there := k.Chains[name]; there {
						t.Errorf("%s is left", name)
					}
				}
				if _, there := k.Chains[ourLayout]; !there {
					t.Error("our marker is missing")
				}
			}
			next.adopt()
			next.taken()
			next.tidyUp()
			if text := next.taken(); text != "" {
				t.Errorf("there is still to do:\n%s", text)
			}
		})
	}
}

// TestANewerLayoutIsTakenOver on a real kernel, and the log says what was found.
func TestANewerLayoutIsTakenOver(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b iptables.Backend) {
		s := newStation(t, b)
		s.well()
		for _, program := range []string{"iptables-", "ip6tables-"} {
			command(t, program+string(b), "-w", "-E", ourLayout, newerLayout)
		}
		command(t, "ipset", "flush", "weave-gate-ingress")
		if !s.live.Watch(t.Context()) {
			t.Fatal("nobody saw it")
		}
		s.well()
		s.expect(bothServed)
		if s.live.Watch(t.Context()) {
			t.Error("what is left of the other version is taken for a change of ours")
		}
		s.logged("written by another version", 2)
		s.agree()
		s.expect(bothServed)
		s.logged(cannot, 0)
	})
}
