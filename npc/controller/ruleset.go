package controller

import (
	"strings"

	"github.com/weave-npc/weave-npc/npc/naming"
	compiled "github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/traffic"
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
	family traffic.Family
	match  string
	// number is that of the rule in the policy, from 1.
	number int
}

// activate provisions what a policy's rules need, and the rules, if it selects a local pod. The namespace's rules have to be shared out afterwards.
func (m *Controller) activate(ns *namespace, p *policy) {
	if len(p.selected) == 0 || p.active {
		return
	}
	p.active, p.renders = true, [len(traffic.Directions)][]rendering{}
	for _, d := range traffic.Directions {
		if len(p.rules[d]) == 0 || p.over != nil {
			continue
		}
		rs := ns.ruleSet(d)
		rs.users[p] = struct{}{}
		for i, r := range p.rules[d] {
			for f := range traffic.Families {
				for _, match := range m.matches(p, d, r, traffic.Family(f)) {
					p.renders[d] = append(p.renders[d], rendering{traffic.Family(f), match, i + 1})
				}
			}
		}
	}
}

// deactivate takes back what activate did. The namespace's rules have to be shared out afterwards.
func (m *Controller) deactivate(ns *namespace, p *policy) {
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
func (ns *namespace) ruleSet(d traffic.Direction) *ruleSet {
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
func (m *Controller) matches(p *policy, d traffic.Direction, r compiled.MergedRule, f traffic.Family) []string {
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
func (m *Controller) match(p *policy, d traffic.Direction, peer rulePeer, port compiled.MergedPorts, anyPeer bool, f traffic.Family) string {
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
	case port.Name != "" && d == traffic.Ingress:
		target.port = name
		parts = append(parts, naming.Match(m.use(p, target).sets[f].Key(), "dst,dst"))
	case p.target.Selector != nil:
		parts = append(parts, naming.Match(m.use(p, target).sets[f].Key(), d.Own()))
	}
	ofPeer := d == traffic.Egress && port.Name != ""
	switch {
	case peer.Block != nil || peer.union != nil || anyPeer:
		if ofPeer {
			anyPod := selectorSpec{scope: clusterScope, port: name}
			parts = append(parts, naming.Match(m.use(p, anyPod).sets[f].Key(), "dst,dst"))
		}
		if peer.union != nil {
			parts = append(parts, naming.Match(peer.union.sets[f].Key(), d.Peer()))
		}
		if peer.Block != nil {
			parts = append(parts, naming.Match(m.useBlock(p, peer.Block).Key(), d.Peer()))
		}
	default:
		spec, dir := m.peerSelector(peer.MergedPeer), d.Peer()
		if ofPeer {
			if spec.scope == listScope {
				spec.scope = clusterScope
			}
			spec.port, dir = name, "dst,dst"
		}
		parts = append(parts, naming.Match(m.use(p, spec).sets[f].Key(), dir))
	}
	return strings.Join(parts, " ")
}
