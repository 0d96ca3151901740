package controller

import (
	"fmt"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/ipblock"
	"github.com/weave-npc/weave-npc/npc/naming"
	compiled "github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// union is a list of the sets of peers that stand together in a rule.
type union struct {
	key   string
	sets  [len(traffic.Families)]*dataplane.Set
	users map[*policy]struct{}
}

// useUnion provisions a list of a rule's peers for a policy.
func (m *Controller) useUnion(p *policy, peers []compiled.MergedPeer) *union {
	var members [len(traffic.Families)][]*dataplane.Set
	parts := []string{"union"}
	for _, peer := range peers {
		if peer.Block != nil {
			f := blockFamily(peer.Block)
			members[f] = append(members[f], m.useBlock(p, peer.Block))
			parts = append(parts, peer.Block.Key()...)
			continue
		}
		spec := m.peerSelector(peer)
		if spec.scope == listScope {
			spec.scope = clusterScope // a list holds no lists
		}
		s := m.use(p, spec)
		parts = append(parts, spec.key()...)
		for f := range traffic.Families {
			members[f] = append(members[f], s.sets[f])
		}
	}
	key := naming.Hash(parts...)
	u := m.unions[key]
	if u == nil {
		u = &union{key: key, users: map[*policy]struct{}{}}
		m.unions[key] = u
		for f, t := range m.tables {
			u.sets[f] = t.Sets.Add(naming.Set(t.Family, parts...), ipset.ListSet, fmt.Sprintf("%d peers of %s", len(peers), p.key()))
			for _, s := range members[f] {
				u.sets[f].Add(ipset.Member(s.Name), ipset.Attr{Comment: comment(s.About())})
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
	set   *dataplane.Set
	users map[*policy]struct{}
}

func blockFamily(u *ipblock.Union) traffic.Family {
	if u.Is6() {
		return traffic.IPv6
	}
	return traffic.IPv4
}

// useBlock provisions address blocks for a policy and returns their set.
func (m *Controller) useBlock(p *policy, u *ipblock.Union) *dataplane.Set {
	parts := u.Key()
	key := naming.Hash(parts...)
	b := m.blocks[key]
	if b == nil {
		t := m.tables[blockFamily(u)]
		b = &block{Union: u, users: map[*policy]struct{}{}, set: t.Sets.Add(naming.Set(t.Family, parts...), ipset.HashNet, u.String())}
		for _, e := range u.Entries {
			b.set.Add(ipset.Net(e.Prefix), ipset.Attr{Comment: comment(u.About(e)), NoMatch: e.NoMatch})
		}
		m.blocks[key] = b
	}
	b.users[p] = struct{}{}
	p.blocks[b] = struct{}{}
	return b.set
}

func (m *Controller) deprovisionBlock(b *block, p *policy) {
	if delete(b.users, p); len(b.users) == 0 {
		delete(m.blocks, naming.Hash(b.Key()...))
		b.set.Drop()
	}
}

// deprovisionUnions ends a policy's use of its lists of peers, and those with their last user.
func (m *Controller) deprovisionUnions(p *policy) {
	for _, u := range p.unions {
		if delete(u.users, p); len(u.users) > 0 {
			continue
		}
		delete(m.unions, u.key)
		for _, s := range u.sets {
			s.Drop()
		}
	}
	p.unions = nil
}
