package npc

import (
	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"
)

// ruleSpec is one ingress or egress rule of a policy.
type ruleSpec struct {
	// anyPeer says that the rule names no peers. Without it a rule without peers matches nobody.
	anyPeer bool
	peers   []peerSpec
	// anyPort says that the rule names no ports: every protocol.
	anyPort bool
	ports   []portSpec
}

// peerSpec is one item of from or to: an address block, or pods.
type peerSpec struct {
	block *blockSpec
	// union are several peers together.
	union *union
	// namespace is that of a peer without a namespaceSelector.
	namespace string
	// namespaces is nil where there is no namespaceSelector.
	namespaces *choice
	pods       choice
}

func compileRule(namespace string, peers []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort) (ruleSpec, error) {
	r := ruleSpec{anyPeer: len(peers) == 0, anyPort: len(ports) == 0}
	for i, peer := range peers {
		p, matches, err := compilePeer(namespace, peer)
		if err != nil {
			return r, errors.Wrapf(err, "peer %d", i)
		}
		if matches {
			r.peers = append(r.peers, p)
		}
	}
	var err error
	r.ports, err = compilePorts(ports)
	return r, err
}

// compilePeer says of a peer also whether it can match anything: one of a kind that we do not know cannot.
func compilePeer(namespace string, peer networkingv1.NetworkPolicyPeer) (p peerSpec, matches bool, err error) {
	if peer.IPBlock != nil {
		if peer.PodSelector != nil || peer.NamespaceSelector != nil {
			return p, false, errors.New("ipBlock stands beside a selector")
		}
		p.block, err = compileBlock(peer.IPBlock)
		return p, err == nil, errors.Wrap(err, "ipBlock")
	}
	if peer.PodSelector == nil && peer.NamespaceSelector == nil {
		return p, false, nil
	}
	p.namespace = namespace
	if peer.PodSelector != nil {
		if p.pods, err = compileSelector(peer.PodSelector); err != nil {
			return p, false, errors.Wrap(err, "podSelector")
		}
	}
	if peer.NamespaceSelector != nil {
		c, err := compileSelector(peer.NamespaceSelector)
		if err != nil {
			return p, false, errors.Wrap(err, "namespaceSelector")
		}
		p.namespaces = &c
		if c.nothing {
			return p, false, nil
		}
	}
	return p, !p.pods.nothing, nil
}
