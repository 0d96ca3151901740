package npc

import (
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/rules"
)

// comment is a text as rules and entries carry it.
func comment(text string) string { return iptables.Comment(text) }

// baseChains puts the chains into a table that every node has. It returns those at which the ways to the rules of isolated pods begin.
func (t *table) baseChains(b *rules.Base) (roots [len(directions)]*chain) {
	put := func(name, about string, tail ...iptables.Rule) *chain {
		c := t.chain(name)
		c.fixed, c.about, c.tail = true, about, tail
		c.touch()
		return c
	}
	if b.Hooked {
		t.jump = &iptables.Rule{Target: "-j " + naming.ForwardChain, Comment: "policies of pods on this node"}
		put(naming.ForwardChain, "what passes this node", b.Forward(t.family)...)
	}
	put(naming.LayoutPrefix+naming.Layout, "which layout of sets and chains this is")
	put(naming.MainChain, "packets to local pods", b.ToPods(t.family)...)
	put(naming.BroadcastChain, "broadcast that is dropped", b.Broadcast(t.family)...)
	put(naming.EgressChain, "packets from local pods", b.FromPods(t.family)...)
	put(naming.DefaultChain, "local pods that are not isolated, ingress", b.Default(t.family, Ingress)...)
	put(naming.EgressDefaultChain, "local pods that are not isolated, egress", b.Default(t.family, Egress)...)
	for _, d := range directions {
		if b.RepliesApart() {
			put(naming.RepliesChain(d), "what opens no connection, "+d.String(), b.Replies(t.family, d)...)
		}
		c := put(naming.IsolatedChain(d), "the way to the rules of isolated pods, "+d.String(), b.Isolated(t.family, d)...)
		c.lazy = true
		roots[d] = c
		drop := put(naming.DropChain(d), "report and drop, "+d.String(), iptables.Rule{Target: "-j DROP", Comment: "blocked"})
		drop.ordered = true
		for _, r := range b.Reports(d) {
			drop.rules[r.Match] = &rule{match: r.Match, target: r.Target, about: r.Comment, order: r.Order, reports: true}
		}
	}
	return roots
}
