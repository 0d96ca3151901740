package npc

import (
	"fmt"
	"slices"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/ipblock"
)

const (
	// crossLimit is how many rules the peers of one rule of a policy may come to with its ports. With more, its peers are one
	// list of their sets: it is searched member by member, which takes as long as as many rules would, but for the ports that match only.
	crossLimit = 256
	// maxRules and maxSets are how many rules and sets a policy may come to in a family. With more it is invalid: the kernel takes 65,534
	// sets for all policies together, and each rule costs time for every new connection.
	maxRules = 20_000
	maxSets  = 8_000
)

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

// cost is how many rules and sets a rule comes to, at most.
func (r ruleSpec) cost() (rules, sets int) {
	named := 0
	for _, p := range r.ports {
		if p.name != "" {
			named++
		}
	}
	if r.crosses() {
		return len(r.ports), len(r.peers) + 1 + named
	}
	return max(len(r.peers), 1) * max(len(r.ports), 1), max(len(r.peers), 1) * (1 + named)
}

// checkSize refuses what would come to more rules or sets than a policy may have.
func (p *policy) checkSize() error {
	rules, sets := 0, 1
	for _, of := range p.rules {
		for _, r := range of {
			x, y := r.cost()
			rules, sets = rules+x, sets+y
		}
	}
	if rules > maxRules || sets > maxSets {
		return errors.Errorf("spec: comes to as many as %d rules and %d sets; a policy may have %d and %d", rules, sets, maxRules, maxSets)
	}
	return nil
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
	key := hash(parts...)
	u := m.unions[key]
	if u == nil {
		u = &union{key: key, users: map[*policy]struct{}{}}
		m.unions[key] = u
		for f, t := range m.tables {
			u.sets[f] = t.set(setName(t.family, parts...), ipset.ListSet, fmt.Sprintf("%d peers of %s", len(peers), p.key()))
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
	key := hash(parts...)
	b := m.blocks[key]
	if b == nil {
		t := m.tables[blockFamily(u)]
		b = &block{Union: u, users: map[*policy]struct{}{}, set: t.set(setName(t.family, parts...), ipset.HashNet, u.String())}
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
		delete(m.blocks, hash(b.Key()...))
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

// weight is how much work the policy is for the kernel, in set entries: a rule or a set takes as long as some thirty of them.
func (p *policy) weight() int {
	w := 1
	for _, of := range p.rules {
		for _, r := range of {
			rules, sets := r.cost()
			w += ruleWeight * (rules + sets)
		}
	}
	return w
}

// ruleWeight is how many set entries take as long to write as a rule or a set.
const ruleWeight = 32
