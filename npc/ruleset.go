package npc

import (
	"strings"

	"github.com/weave-npc/weave-npc/npc/naming"
	compiled "github.com/weave-npc/weave-npc/npc/policy"
)

// ruleSet are the rules of one namespace in one direction.
type ruleSet struct {
	// users are the active policies with rules in the direction.
	users map[*policy]struct{}
	// parts have the rules: digits -> part.
	parts map[string]*part
}

// rendering is one of the matches that a rule of a policy comes to.
type rendering struct {
	family Family
	match  string
	// number is that of the rule in the policy, from 1.
	number int
}

// activate provisions what a policy's rules need, and the rules, if it selects a local pod. The namespace's rules have to be shared out afterwards.
func (m *Model) activate(ns *namespace, p *policy) {
	if len(p.selected) == 0 || p.active {
		return
	}
	p.active, p.renders = true, [len(directions)][]rendering{}
	for _, d := range directions {
		if len(p.rules[d]) == 0 || p.over != nil {
			continue
		}
		rs := ns.ruleSet(d)
		rs.users[p] = struct{}{}
		for i, r := range p.rules[d] {
			for f := range families {
				for _, match := range m.matches(p, d, r, Family(f)) {
					p.renders[d] = append(p.renders[d], rendering{Family(f), match, i + 1})
				}
			}
		}
	}
}

// deactivate takes back what activate did. The namespace's rules have to be shared out afterwards.
func (m *Model) deactivate(ns *namespace, p *policy) {
	p.active = false
	for _, rs := range ns.rules {
		if rs != nil {
			delete(rs.users, p)
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

// ruleSet returns a namespace's rules in a direction, making them if need be.
func (ns *namespace) ruleSet(d Direction) *ruleSet {
	if ns.rules[d] == nil {
		ns.rules[d] = &ruleSet{users: map[*policy]struct{}{}, parts: map[string]*part{}}
	}
	return ns.rules[d]
}

// rulePeer is a peer of a rule, or several together.
type rulePeer struct {
	compiled.MergedPeer
	union *union
}

// matches are the iptables matches that a rule comes to in a family: one for each of its peers
// with each of its ports.
func (m *Model) matches(p *policy, d Direction, r compiled.MergedRule, f Family) []string {
	var out []string
	ports := r.Ports
	if r.AnyPort {
		ports = []compiled.MergedPorts{{}}
	}
	var peers []rulePeer
	switch {
	case r.AnyPeer:
		peers = []rulePeer{{}}
	case r.Crosses():
		peers = []rulePeer{{union: m.useUnion(p, r.Peers)}}
	default:
		for _, one := range r.Peers {
			peers = append(peers, rulePeer{MergedPeer: one})
		}
	}
	for _, peer := range peers {
		if peer.Block != nil && blockFamily(peer.Block) != f {
			continue
		}
		for _, port := range ports {
			out = append(out, m.match(p, d, peer, port, r.AnyPeer, f))
		}
	}
	return out
}

// match is one of them. Protocol and ports come first, because they cost least, and a list of
// namespaces last, because it costs most.
func (m *Model) match(p *policy, d Direction, peer rulePeer, port compiled.MergedPorts, anyPeer bool, f Family) string {
	var parts []string
	if port.Protocol != 0 {
		parts = append(parts, port.Match())
	}
	name := portName{port.Name, port.Protocol}
	if port.Name == "" {
		name = portName{}
	}
	target := selectorSpec{scope: targetScope, namespace: p.namespace, pods: p.target.Selector}
	switch {
	case port.Name != "" && d == Ingress:
		target.port = name
		parts = append(parts, naming.Match(m.use(p, target).sets[f].key, "dst,dst"))
	case p.target.Selector != nil:
		parts = append(parts, naming.Match(m.use(p, target).sets[f].key, d.Own()))
	}
	ofPeer := d == Egress && port.Name != ""
	switch {
	case peer.Block != nil || peer.union != nil || anyPeer:
		if ofPeer {
			anyPod := selectorSpec{scope: clusterScope, port: name}
			parts = append(parts, naming.Match(m.use(p, anyPod).sets[f].key, "dst,dst"))
		}
		if peer.union != nil {
			parts = append(parts, naming.Match(peer.union.sets[f].key, d.Peer()))
		}
		if peer.Block != nil {
			parts = append(parts, naming.Match(m.useBlock(p, peer.Block).key, d.Peer()))
		}
	default:
		spec, dir := m.peerSelector(peer.MergedPeer), d.Peer()
		if ofPeer {
			if spec.scope == listScope {
				spec.scope = clusterScope
			}
			spec.port, dir = name, "dst,dst"
		}
		parts = append(parts, naming.Match(m.use(p, spec).sets[f].key, dir))
	}
	return strings.Join(parts, " ")
}
