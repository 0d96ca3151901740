package npc

import (
	"fmt"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/budget"
	"github.com/weave-npc/weave-npc/npc/ipblock"
	"github.com/weave-npc/weave-npc/npc/naming"
)

// crossLimit is how many rules the peers of one rule of a policy may come to with its ports. With more, its peers are one
// list of their sets: it is searched member by member, which takes as long as as many rules would, but for the ports that match only.
const crossLimit = 256

// union is a list of the sets of peers that stand together in a rule.
type union struct {
	key   string
	sets  [len(families)]*set
	users map[*policy]struct{}
}

// crosses says whether a rule's peers have to be put together.
func (r ruleSpec) crosses() bool {
	return len(r.peers) > 1 && len(r.ports) > 1 && len(r.peers)*len(r.ports) > crossLimit
}

// cost is what a rule comes to, at most.
func (r ruleSpec) cost() (c budget.Cost) {
	named := 0
	for _, p := range r.ports {
		if p.name != "" {
			named++
		}
	}
	for _, p := range r.peers {
		if p.block != nil {
			c.Entries += len(p.block.Entries)
		}
	}
	if r.crosses() {
		c.Rules, c.Sets, c.Entries = len(r.ports), len(r.peers)+1+named, c.Entries+len(r.peers)
		return c
	}
	c.Rules, c.Sets = max(len(r.peers), 1)*max(len(r.ports), 1), max(len(r.peers), 1)*(1+named)
	return c
}

// needs is what the policy's rules come to, and the set of its target.
func (p *policy) needs() budget.Cost {
	c := budget.Cost{Sets: 1}
	for _, of := range p.rules {
		for _, r := range of {
			c = c.Plus(r.cost())
		}
	}
	return c
}

// useUnion provisions a list of a rule's peers for a policy.
func (m *Model) useUnion(p *policy, peers []peerSpec) *union {
	var members [len(families)][]*set
	parts := []string{"union"}
	for _, peer := range peers {
		if peer.block != nil {
			f := blockFamily(peer.block)
			members[f] = append(members[f], m.useBlock(p, peer.block))
			parts = append(parts, peer.block.Key()...)
			continue
		}
		spec := m.peerSelector(peer)
		if spec.scope == listScope {
			spec.scope = clusterScope // a list holds no lists
		}
		s := m.use(p, spec)
		parts = append(parts, spec.key()...)
		for f := range families {
			members[f] = append(members[f], s.sets[f])
		}
	}
	key := naming.Hash(parts...)
	u := m.unions[key]
	if u == nil {
		u = &union{key: key, users: map[*policy]struct{}{}}
		m.unions[key] = u
		for f, t := range m.tables {
			u.sets[f] = t.set(naming.Set(t.family, parts...), ipset.ListSet, fmt.Sprintf("%d peers of %s", len(peers), p.key()))
			for _, s := range members[f] {
				u.sets[f].add(ipset.Member(s.Name), ipset.Attr{Comment: comment(s.about)})
			}
		}
	}
	u.users[p] = struct{}{}
	if !slices.Contains(p.unions, u) {
		p.unions = append(p.unions, u)
	}
	return u
}

// block is what address blocks match that policies name in one rule, with its set.
type block struct {
	*ipblock.Union
	set   *set
	users map[*policy]struct{}
}

func blockFamily(u *ipblock.Union) Family {
	if u.Is6() {
		return IPv6
	}
	return IPv4
}

// useBlock provisions address blocks for a policy and returns their set.
func (m *Model) useBlock(p *policy, u *ipblock.Union) *set {
	parts := u.Key()
	key := naming.Hash(parts...)
	b := m.blocks[key]
	if b == nil {
		t := m.tables[blockFamily(u)]
		b = &block{Union: u, users: map[*policy]struct{}{}, set: t.set(naming.Set(t.family, parts...), ipset.HashNet, u.String())}
		for _, e := range u.Entries {
			b.set.add(ipset.Net(e.Prefix), ipset.Attr{Comment: comment(u.About(e)), NoMatch: e.NoMatch})
		}
		m.blocks[key] = b
	}
	b.users[p] = struct{}{}
	p.blocks[b] = struct{}{}
	return b.set
}

func (m *Model) deprovisionBlock(b *block, p *policy) {
	if delete(b.users, p); len(b.users) == 0 {
		delete(m.blocks, naming.Hash(b.Key()...))
		b.set.table.dropSet(b.set)
	}
}

// deprovisionUnions ends a policy's use of its lists of peers, and those with their last user.
func (m *Model) deprovisionUnions(p *policy) {
	for _, u := range p.unions {
		if delete(u.users, p); len(u.users) > 0 {
			continue
		}
		delete(m.unions, u.key)
		for _, s := range u.sets {
			s.table.dropSet(s)
		}
	}
	p.unions = nil
}
