package npc

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/npc/naming"
)

// use provisions a selector for a policy.
func (m *Model) use(p *policy, spec selectorSpec) *selector {
	s := m.provision(spec, p)
	p.used[s] = struct{}{}
	return s
}

// flatAbove is how many namespaces a list of sets may have. A packet that no member holds asks them all, one after the other.
const flatAbove = 8

// peerSelector is the selector for a peer that names pods.
func (m *Model) peerSelector(peer peerSpec) selectorSpec {
	if peer.namespaces == nil {
		return selectorSpec{scope: podScope, namespace: peer.namespace, pods: peer.pods.Selector}
	}
	spec := selectorSpec{scope: clusterScope, namespaces: labels.Everything(), pods: peer.pods.Selector}
	if peer.namespaces.Selector != nil {
		spec.namespaces = peer.namespaces.Selector
	}
	if spec.pods == nil && m.matching(spec.namespaces) <= m.listLimit() {
		spec.scope = listScope
	}
	return spec
}

// misfits says whether a policy uses a list where a flat set is due, or the reverse.
func (m *Model) misfits(p *policy) bool {
	for _, rules := range p.rules {
		for _, r := range rules {
			for _, peer := range r.peers {
				if peer.block != nil || peer.namespaces == nil {
					continue
				}
				spec := m.peerSelector(peer)
				if _, ok := p.used[m.selectors[naming.Hash(spec.key()...)]]; !ok && m.needsPeer(r) {
					return true
				}
			}
		}
	}
	return false
}

// needsPeer says whether a rule has a port for which its peers are matched as such, and not by a named port.
func (m *Model) needsPeer(r ruleSpec) bool {
	if r.crosses() {
		return false
	}
	return r.anyPort || slices.ContainsFunc(r.ports, func(p portSpec) bool { return p.name == "" })
}
