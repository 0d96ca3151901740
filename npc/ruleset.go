package npc

import (
	"fmt"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
)

// ruleSet are the rules of one namespace in one direction, and the set of the pods that they are for.
type ruleSet struct {
	users    map[*policy]struct{}
	chains   [len(families)]*chain
	isolated [len(families)]*set
	// through are the branches on the way to the chains.
	through []*branch
}

// placedRule is where a rule is that a policy owns.
type placedRule struct {
	chain *chain
	match string
}

// activate provisions what a policy's rules need, and the rules, if it selects a local pod.
func (m *Model) activate(ns *namespace, p *policy) {
	if len(p.selected) == 0 || len(p.used)+len(p.placed) > 0 {
		return
	}
	for _, d := range directions {
		if len(p.rules[d]) == 0 {
			continue
		}
		rs := m.ruleSet(ns, d)
		rs.users[p] = struct{}{}
		for i, r := range p.rules[d] {
			for f := range families {
				for _, match := range m.matches(p, d, r, Family(f)) {
					p.placed = append(p.placed, rs.chains[f].own(p, match, i+1))
					rs.chains[f].touch()
				}
			}
		}
	}
}

// own makes a policy an owner of a rule.
func (c *chain) own(p *policy, match string, number int) placedRule {
	r := c.rules[match]
	if r == nil {
		r = &rule{match: match, owners: map[*policy]int{}}
		c.rules[match] = r
	}
	if _, ok := r.owners[p]; !ok {
		r.owners[p] = number
	}
	return placedRule{c, match}
}

// deactivate takes back what activate did.
func (m *Model) deactivate(ns *namespace, p *policy) {
	for _, at := range p.placed {
		r := at.chain.rules[at.match]
		if r == nil {
			continue // the policy has the rule twice
		}
		if delete(r.owners, p); len(r.owners) == 0 {
			delete(at.chain.rules, at.match)
		}
		at.chain.touch()
	}
	p.placed = nil
	for _, d := range directions {
		if rs := ns.rules[d]; rs != nil {
			if delete(rs.users, p); len(rs.users) == 0 {
				m.dropRuleSet(ns, d)
			}
		}
	}
	for s := range p.used {
		m.deprovision(s, p)
	}
	for b := range p.blocks {
		m.deprovisionBlock(b, p)
	}
	m.deprovisionUnions(p)
	clear(p.used)
	clear(p.blocks)
}

// ruleSet returns a namespace's rules in a direction, making their chain and the way to it if need be.
func (m *Model) ruleSet(ns *namespace, d Direction) *ruleSet {
	if ns.rules[d] != nil {
		return ns.rules[d]
	}
	rs := &ruleSet{users: map[*policy]struct{}{}}
	name := namespaceChain(d, ns.Name)
	for f, t := range m.tables {
		c := t.chain(name)
		c.about = fmt.Sprintf("what policies of %s allow, %s", ns.Name, d)
		c.target = m.allowTarget(d)
		c.tail = []iptables.Rule{{Target: "-g " + dropChain(d), Comment: comment(ns.Name + ": nothing allows it")}}
		rs.chains[f] = c
		rs.isolated[f] = t.set(setName(t.family, "isolated", d.String(), ns.Name), ipset.HashIP,
			fmt.Sprintf("local pods in %s that policies isolate, %s", ns.Name, d))
		rs.isolated[f].leadsTo = c
	}
	ns.rules[d] = rs
	m.leadTo(ns, d, true)
	for p := range ns.local {
		m.place(p)
	}
	return rs
}

func (m *Model) dropRuleSet(ns *namespace, d Direction) {
	rs := ns.rules[d]
	m.leadTo(ns, d, false)
	ns.rules[d] = nil
	for p := range ns.local {
		m.place(p)
	}
	for f, t := range m.tables {
		t.dropChain(rs.chains[f])
		t.dropSet(rs.isolated[f])
	}
}

func matchSet(name, dir string) string { return "-m set --match-set " + name + " " + dir }

// matches are the iptables matches that a rule comes to in a family: one for each of its peers
// with each of its ports.
func (m *Model) matches(p *policy, d Direction, r ruleSpec, f Family) []string {
	var out []string
	ports := r.ports
	if r.anyPort {
		ports = []portSpec{{}}
	}
	peers := r.peers
	switch {
	case r.anyPeer:
		peers = []peerSpec{{}}
	case r.crosses():
		peers = []peerSpec{{union: m.useUnion(p, r.peers)}}
	}
	for _, peer := range peers {
		if peer.block != nil && peer.block.family() != f {
			continue
		}
		for _, port := range ports {
			out = append(out, m.match(p, d, peer, port, r.anyPeer, f))
		}
	}
	return out
}

// match is one of them. Protocol and ports come first, because they cost least, and a list of
// namespaces last, because it costs most.
func (m *Model) match(p *policy, d Direction, peer peerSpec, port portSpec, anyPeer bool, f Family) string {
	var parts []string
	if port.protocol != 0 {
		parts = append(parts, port.match())
	}
	name := portName{port.name, port.protocol}
	if port.name == "" {
		name = portName{}
	}
	target := selectorSpec{scope: targetScope, namespace: p.namespace, pods: p.target.Selector}
	switch {
	case port.name != "" && d == Ingress:
		target.port = name
		parts = append(parts, matchSet(m.use(p, target).sets[f].key, "dst,dst"))
	case p.target.Selector != nil:
		parts = append(parts, matchSet(m.use(p, target).sets[f].key, d.own()))
	}
	ofPeer := d == Egress && port.name != ""
	switch {
	case peer.block != nil || peer.union != nil || anyPeer:
		if ofPeer {
			anyPod := selectorSpec{scope: clusterScope, port: name}
			parts = append(parts, matchSet(m.use(p, anyPod).sets[f].key, "dst,dst"))
		}
		if peer.union != nil {
			parts = append(parts, matchSet(peer.union.sets[f].key, d.peer()))
		}
		if peer.block != nil {
			parts = append(parts, matchSet(m.useBlock(p, peer.block).key, d.peer()))
		}
	default:
		spec, dir := m.peerSelector(peer), d.peer()
		if ofPeer {
			if spec.scope == listScope {
				spec.scope = clusterScope
			}
			spec.port, dir = name, "dst,dst"
		}
		parts = append(parts, matchSet(m.use(p, spec).sets[f].key, dir))
	}
	return strings.Join(parts, " ")
}
