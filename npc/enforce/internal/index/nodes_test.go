package index

import (
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// deny provisions the sets of a policy that denies egress to peers, in YAML. It returns what ends that.
func (w *harness) deny(peers string) (end func()) {
	w.Helper()
	o := fixture.ClusterPolicy(w, "p", "{tier: Admin, subject: {namespaces: {}}, egress: [{action: Deny, to: ["+peers+"]}]}")
	p := policy.CompileCluster(o)
	if p.Invalid != nil {
		w.Fatal(p.Invalid)
	}
	user := &dataplane.Owner{Name: "p"}
	sets := w.Sets.Provision(rules.RenderCluster(&p).Sets, user)
	ruled := 0
	for id, set := range sets.OfRules() {
		if ruled++; id == "" || set == nil {
			w.Errorf("set %v of rule %q", set, id)
		}
	}
	if want := len(npc.Families) * len(o.Spec.Egress[0].To); ruled != want {
		w.Errorf("%d sets of rules, want %d", ruled, want)
	}
	return func() { w.Sets.Deprovision(sets, user) }
}

// TestS84_SetsOfNodes hold the addresses of the nodes that a selector matches, each in its family, however the nodes
// came to be what they are. A pod that has such an address changes nothing.
func TestS84_SetsOfNodes(t *testing.T) {
	const all, some = "nodes: ", "nodes with zone=x: "
	nodes := func(w *harness) {
		w.SetNode(fixture.Node("a zone=x 192.0.2.1 2001:db8::1 192.0.2.11"))
		w.SetNode(fixture.Node("b zone=y 192.0.2.2"))
		w.SetNode(fixture.Node("c"))
	}
	for _, c := range []struct {
		name   string
		event  func(*harness)
		v4, v6 string
	}{
		{"as they were", nodes, all + "192.0.2.1 of a, 192.0.2.11 of a, 192.0.2.2 of b\n" + some + "192.0.2.1 of a, 192.0.2.11 of a",
			all + "2001:db8::1 of a\n" + some + "2001:db8::1 of a"},
		{"relabelled", func(w *harness) {
			w.SetNode(fixture.Node("a 192.0.2.1"))
			w.SetNode(fixture.Node("b zone=x 192.0.2.2"))
		},
			all + "192.0.2.1 of a, 192.0.2.2 of b\n" + some + "192.0.2.2 of b", all + "\n" + some},
		{"another address", func(w *harness) { w.SetNode(fixture.Node("a zone=x 192.0.2.3 2001:db8::3")) },
			all + "192.0.2.2 of b, 192.0.2.3 of a\n" + some + "192.0.2.3 of a", all + "2001:db8::3 of a\n" + some + "2001:db8::3 of a"},
		{"an address of two nodes", func(w *harness) { w.SetNode(fixture.Node("b zone=x 192.0.2.1")) },
			all + "192.0.2.1 of a, 192.0.2.11 of a\n" + some + "192.0.2.1 of a, 192.0.2.11 of a", all + "2001:db8::1 of a\n" + some + "2001:db8::1 of a"},
		{"one of them goes", func(w *harness) { w.SetNode(fixture.Node("b zone=x 192.0.2.1")); w.DeleteNode("a", "a") },
			all + "192.0.2.1 of b\n" + some + "192.0.2.1 of b", all + "\n" + some},
		{"one of them is relabelled", func(w *harness) {
			w.SetNode(fixture.Node("b zone=x 192.0.2.1"))
			w.SetNode(fixture.Node("a zone=y 192.0.2.1"))
		},
			all + "192.0.2.1 of a\n" + some + "192.0.2.1 of b", all + "\n" + some},
		{"deleted", func(w *harness) { w.DeleteNode("a", "a"); w.DeleteNode("b", "") }, all + "\n" + some, all + "\n" + some},
		{"another of its name deleted", func(w *harness) { w.DeleteNode("a", "z"); w.DeleteNode("z", "") },
			all + "192.0.2.1 of a, 192.0.2.11 of a, 192.0.2.2 of b\n" + some + "192.0.2.1 of a, 192.0.2.11 of a",
			all + "2001:db8::1 of a\n" + some + "2001:db8::1 of a"},
		{"a pod with such an address", func(w *harness) { w.do("shop/web {node: node1, addrs: [192.0.2.1]}", "delete shop/web") },
			all + "192.0.2.1 of a, 192.0.2.11 of a, 192.0.2.2 of b\n" + some + "192.0.2.1 of a, 192.0.2.11 of a",
			all + "2001:db8::1 of a\n" + some + "2001:db8::1 of a"},
	} {
		for _, first := range []string{"nodes", "policy"} {
			t.Run(c.name+" "+first+" first", func(t *testing.T) {
				w := newHarness(t)
				steps := []func(){func() { nodes(w); c.event(w) }, nil}
				var end func()
				steps[1] = func() { end = w.deny("{nodes: {}}, {nodes: {matchLabels: {zone: x}}}") }
				if first == "policy" {
					steps[0], steps[1] = steps[1], steps[0]
				}
				for _, do := range steps {
					do()
				}
				w.holds(npc.IPv4, "local pods:\n"+c.v4)
				w.holds(npc.IPv6, "local pods:\n"+c.v6)
				end()
				w.empty()
				if len(w.Sets.nodes.sets) > 0 {
					t.Errorf("left: %v", w.Sets.nodes.sets)
				}
			})
		}
	}
}
