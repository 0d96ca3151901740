package controller

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/npc/naming"
	compiled "github.com/weave-npc/weave-npc/npc/policy"
)

// use provisions a selector for a policy.
func (m *Controller) use(p *policy, spec selectorSpec) *selector {
	s := m.provision(spec, p)
	p.used[s] = struct{}{}
	return s
}

// flatAbove is how many namespaces a list of sets may have. A packet that no member holds asks them all, one after the other.
const flatAbove = 8

// peerSelector is the selector for a peer that names pods.
func (m *Controller) peerSelector(peer compiled.MergedPeer) selectorSpec {
	if peer.Namespaces == nil {
		return selectorSpec{scope: podScope, namespace: peer.Namespace, pods: peer.Pods.Selector}
	}
	spec := selectorSpec{scope: clusterScope, namespaces: labels.Everything(), pods: peer.Pods.Selector}
	if peer.Namespaces.Selector != nil {
		spec.namespaces = peer.Namespaces.Selector
	}
	if spec.pods == nil && m.matching(spec.namespaces) <= m.listLimit() {
		spec.scope = listScope
	}
	return spec
}

// misfits reports whether a policy uses a list where a flat set is due, or the reverse.
func (m *Controller) misfits(p *policy) bool {
	for _, rules := range p.rules {
		for _, r := range rules {
			for _, peer := range r.Peers {
				if peer.Block != nil || peer.Namespaces == nil {
					continue
				}
				spec := m.peerSelector(peer)
				if _, ok := p.used[m.selectors[naming.Hash(spec.key()...)]]; !ok && r.NeedsPeers() {
					return true
				}
			}
		}
	}
	return false
}
