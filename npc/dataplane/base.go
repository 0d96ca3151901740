package dataplane

import (
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/rules"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// AddBase makes the chains desired that every node has. It returns those in which the dispatch to the rules of isolated pods begins.
func (t *Table) AddBase(b *rules.Base) (roots [2]*Chain) {
	put := func(name, about string, tail ...iptables.Rule) *Chain {
		c := t.chain(name)
		c.fixed, c.about, c.tail = true, about, tail
		c.touch()
		return c
	}
	if b.Hooked {
		t.jump = &iptables.Rule{Target: "-j " + naming.ForwardChain, Comment: "policies of pods on this node"}
		put(naming.ForwardChain, "what passes this node", b.Forward(t.Family)...)
	}
	put(naming.LayoutPrefix+naming.Layout, "which layout of sets and chains this is")
	put(naming.MainChain, "packets to local pods", b.ToPods(t.Family)...)
	put(naming.BroadcastChain, "broadcast that is dropped", b.Broadcast(t.Family)...)
	put(naming.EgressChain, "packets from local pods", b.FromPods(t.Family)...)
	put(naming.DefaultChain, "local pods that are not isolated, ingress", b.Default(t.Family, traffic.Ingress)...)
	put(naming.EgressDefaultChain, "local pods that are not isolated, egress", b.Default(t.Family, traffic.Egress)...)
	for _, d := range traffic.Directions {
		if b.RepliesApart() {
			put(naming.RepliesChain(d), "what opens no connection, "+d.String(), b.Replies(t.Family, d)...)
		}
		c := put(naming.IsolatedChain(d), "the way to the rules of isolated pods, "+d.String(), b.Isolated(t.Family, d)...)
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

// SetBase replaces the rules of the base's chains that name the uplinks of the pods' bridge.
func (t *Table) SetBase(b *rules.Base) {
	t.chain(naming.MainChain).setTail(b.ToPods(t.Family))
	t.chain(naming.EgressChain).setTail(b.FromPods(t.Family))
	t.chain(naming.IngressChain).setTail(b.Isolated(t.Family, traffic.Ingress))
}

// AddDispatch makes a node of the dispatch tree desired, a chain that leads to the rules of some shards.
func (t *Table) AddDispatch(name, about string, b *rules.Base, d traffic.Direction) *Chain {
	c := t.chain(name)
	c.about, c.lazy, c.tail = about, true, b.Isolated(t.Family, d)
	return c
}

// AddShard makes a chain desired that has the rules for some pods of a namespace.
func (t *Table) AddShard(name, namespace, about string, b *rules.Base, d traffic.Direction) *Chain {
	c := t.chain(name)
	c.about, c.target, c.namespace = about, b.AllowTarget(d), namespace
	c.tail = []iptables.Rule{{Target: "-g " + naming.DropChain(d), Comment: iptables.Comment(namespace + ": nothing allows it")}}
	return c
}
