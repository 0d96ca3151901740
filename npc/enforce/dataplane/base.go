package dataplane

import (
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/jump"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// AddBase makes the chains desired that every node has. It returns the chains that dispatch to the rules of isolated
// pods.
func (cs *Chains) AddBase(b *rules.Base) (roots [2]*Chain) {
	if b.Hooked {
		if cs.jumps == nil {
			cs.jumps = append([]*jump.Jump{jump.New(naming.HookChain, naming.ForwardChain, b.Through())},
				jump.ToNode(b, cs.family.ip)...)
		}
		cs.jumps[0].Want(true)
		cs.addFixed(naming.ForwardChain, "what passes this node", b.Forward(cs.family.ip)...)
		cs.addFixed(naming.InputChain, "packets from local pods to this node", b.Input(cs.family.ip)...)
	}
	cs.addFixed(naming.LayoutPrefix+naming.Layout, "which layout of sets and chains this is")
	cs.addFixed(naming.MainChain, "packets to local pods", b.ToPods(cs.family.ip)...)
	cs.addFixed(naming.BroadcastChain, "broadcast that is dropped", b.Broadcast(cs.family.ip)...)
	if b.TerminateMark != 0 {
		cs.addFixed(naming.TerminateChain, "connections that were ended", rules.Terminate()...)
	}
	cs.addFixed(naming.EgressChain, "packets from local pods", b.FromPods(cs.family.ip)...)
	cs.addFixed(naming.DefaultChain, "local pods that are not isolated, ingress", b.Default(cs.family.ip, npc.Ingress)...)
	cs.addFixed(naming.EgressDefaultChain, "local pods that are not isolated, egress", b.Default(cs.family.ip, npc.Egress)...)
	for _, d := range npc.Directions {
		cs.addFixed(naming.RepliesChain(d), "what opens no connection, "+d.String(), b.Replies(cs.family.ip, d)...)
		roots[d] = cs.addFixed(naming.IsolatedChain(d), "the way to the rules of isolated pods, "+d.String(),
			b.Isolated(cs.family.ip, d)...)
		roots[d].lazy = true
		drop := cs.addFixed(naming.DropChain(d), "report and drop, "+d.String(),
			iptables.Rule{Target: "-j DROP", Comment: "blocked"})
		drop.ordered = true
		for _, r := range b.Reports(d) {
			drop.rules[r.Match] = &rule{match: r.Match, target: r.Target, about: r.Comment, order: r.Order,
				reports: true}
		}
	}
	return roots
}

// addFixed makes a chain desired that every node has.
func (cs *Chains) addFixed(name, about string, tail ...iptables.Rule) *Chain {
	c := cs.want(name)
	c.fixed, c.about, c.tail = true, about, tail
	c.touch()
	return c
}

// SetBase replaces the rules of the base's chains that name the uplinks of the pods' bridge or jump to tiers, and has
// packets to the node itself evaluated if they are to be, and connections ended.
func (cs *Chains) SetBase(b *rules.Base) {
	for _, j := range cs.jumps {
		j.Want(j.Chain() == naming.HookChain || b.EvaluatesNode() && j.LeadsTo() != naming.EgressChain &&
			(b.TerminateMark != 0 || j.LeadsTo() != naming.TerminateChain))
	}
	if b.TerminateMark != 0 {
		cs.addFixed(naming.TerminateChain, "connections that were ended", rules.Terminate()...)
	}
	if b.Hooked {
		cs.want(naming.ForwardChain).setTail(b.Forward(cs.family.ip))
		cs.want(naming.InputChain).setTail(b.Input(cs.family.ip))
	}
	cs.want(naming.MainChain).setTail(b.ToPods(cs.family.ip))
	cs.want(naming.EgressChain).setTail(b.FromPods(cs.family.ip))
	cs.want(naming.RepliesChain(npc.Egress)).setTail(b.Replies(cs.family.ip, npc.Egress))
	cs.want(naming.IngressChain).setTail(b.Isolated(cs.family.ip, npc.Ingress))
	for _, d := range npc.Directions {
		cs.want(naming.NewChain(d)).setTail(b.Default(cs.family.ip, d))
	}
}

// AddLists makes a chain desired that leads to the lists of policies of a tier.
func (cs *Chains) AddLists(t policy.Tier, b *rules.Base, d npc.Direction) *Chain {
	c := cs.want(naming.TierChain(t.String(), d))
	c.about, c.fixed, c.lazy, c.tail = t.String()+" policies of local pods, "+d.String(), true, true,
		[]iptables.Rule{b.EndOfLists(t, d)}
	c.touch()
	return c
}

// AddList makes a chain desired that has the rules of a list of policies of a tier, in order.
func (cs *Chains) AddList(name, about string, t policy.Tier, b *rules.Base, d npc.Direction) *Chain {
	c := cs.want(name)
	c.about, c.ordered, c.tail = about, true, []iptables.Rule{b.EndOfList(t, d)}
	return c
}

// AddDispatch makes a node of the dispatch tree desired, a chain that leads to the rules of some shards.
func (cs *Chains) AddDispatch(name, about string, b *rules.Base, d npc.Direction) *Chain {
	c := cs.want(name)
	c.about, c.lazy, c.tail = about, true, b.Isolated(cs.family.ip, d)
	return c
}

// AddShard makes a chain desired that has the rules for some pods of a namespace.
func (cs *Chains) AddShard(name, namespace, about string, b *rules.Base, d npc.Direction) *Chain {
	c := cs.want(name)
	c.about, c.target, c.namespace = about, b.AllowTarget(d), namespace
	c.tail = []iptables.Rule{{Target: "-g " + naming.DropChain(d),
		Comment: iptables.Comment(namespace + ": nothing allows it")}}
	return c
}
