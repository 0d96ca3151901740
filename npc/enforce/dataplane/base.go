package dataplane

import (
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/jump"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// AddBase makes the chains desired that every node has, and returns those that dispatch to the rules of isolated pods.
func (cs *Chains) AddBase(b *rules.Base) (roots [2]*Chain) {
	if b.Hooked && cs.jumps == nil {
		cs.jumps = jump.Of(b, cs.family.ip)
	}
	cs.SetBase(b)
	for _, d := range npc.Directions {
		roots[d] = cs.byName[naming.IsolatedChain(d)]
		roots[d].lazy = true
		drop := cs.addFixed(naming.DropChain(d), "report and drop, "+d.String(),
			iptables.Rule{Target: "-j DROP", Comment: "blocked"})
		drop.ordered = true
		for _, r := range b.Reports(d) {
			drop.rules[r.Match] = &rule{match: r.Match, reports: true,
				ChainRule: ChainRule{Target: r.Target, About: r.Comment, Order: r.Order}}
		}
	}
	return roots
}

// addFixed makes a chain desired that every node has.
func (cs *Chains) addFixed(name, about string, tail ...iptables.Rule) *Chain {
	c := cs.want(name)
	c.fixed, c.about, c.tail = true, about, tail
	c.Touch()
	return c
}

// SetBase replaces the rules of the base's chains, and makes those desired or not that the base needs at times.
func (cs *Chains) SetBase(b *rules.Base) {
	f := cs.family.ip
	for _, j := range cs.jumps {
		j.Want(j.Serves(b))
	}
	cs.setDNS(b)
	if b.TerminateMark != 0 {
		cs.addFixed(naming.TerminateChain, "connections that were ended", rules.Terminate()...)
	}
	if b.Hooked {
		cs.addFixed(naming.ForwardChain, "what passes this node", b.Forward(f)...)
		cs.addFixed(naming.InputChain, "packets from local pods to this node", b.Input(f)...)
	}
	cs.addFixed(naming.MainChain, "packets to local pods", b.ToPods(f)...)
	cs.addFixed(naming.EgressChain, "packets from local pods", b.FromPods(f)...)
	cs.addFixed(naming.LayoutPrefix+naming.Layout, "which layout of sets and chains this is")
	cs.addFixed(naming.BroadcastChain, "broadcast that is dropped", b.Broadcast(f)...)
	for _, d := range npc.Directions {
		cs.addFixed(naming.RepliesChain(d), "what opens no connection, "+d.String(), b.Replies(f, d)...)
		cs.addFixed(naming.IsolatedChain(d), "the way to the rules of isolated pods, "+d.String(), b.Isolated(f, d)...)
		cs.addFixed(naming.NewChain(d), "local pods that are not isolated, "+d.String(), b.Default(f, d)...)
	}
}

// setDNS makes the chains desired that hold answers of resolvers, or no longer. Rules that the kernel does not take are
// left out.
func (cs *Chains) setDNS(b *rules.Base) {
	for name, ordered := range map[string][]iptables.Rule{
		naming.DNSChain: rules.DNS(b), naming.DNSHoldChain: rules.DNSHold(b, cs.family.ip)} {
		if c := cs.byName[name]; b.Names == "" && c != nil && c.wanted {
			c.Drop()
		} else if b.Names != "" {
			all := make(map[string]ChainRule, len(ordered))
			for _, r := range ordered {
				all[r.Match] = ChainRule{Target: r.Target, About: r.Comment, Order: r.Order, Owners: map[*Owner]int{cs.names: 1}}
			}
			c = cs.addFixed(name, "answers of resolvers with names that policies accept")
			c.ordered = true
			c.SetRules(all)
		}
	}
}

// AddLists makes a chain desired that leads to the lists of policies of a tier.
func (cs *Chains) AddLists(t policy.Tier, b *rules.Base, d npc.Direction) *Chain {
	c := cs.want(naming.TierChain(t.String(), d))
	c.about, c.fixed, c.lazy, c.tail = t.String()+" policies of local pods, "+d.String(), true, true,
		[]iptables.Rule{b.EndOfLists(t, d)}
	c.Touch()
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
