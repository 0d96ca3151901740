package npc

import (
	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc/ipblock"
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

// peerSpec is one item of from or to: pods, or all address blocks of the rule that are of one family.
type peerSpec struct {
	block *ipblock.Union
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
	var blocks [len(families)][]ipblock.Block
	for i, peer := range peers {
		p, matches, err := compilePeer(namespace, peer)
		if err != nil {
			return r, errors.Wrapf(err, "peer %d", i)
		}
		switch {
		case p.block != nil:
			f := familyOf(p.block.Block.CIDR.Addr())
			blocks[f] = append(blocks[f], p.block.Block)
		case matches:
			r.peers = append(r.peers, p)
		}
	}
	for _, of := range blocks {
		if len(of) > 0 {
			r.peers = append(r.peers, peerSpec{block: ipblock.Of(of)})
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
		block, err := ipblock.Compile(peer.IPBlock)
		if err != nil {
			return p, false, errors.Wrap(err, "ipBlock")
		}
		p.block = ipblock.Of([]ipblock.Block{block})
		return p, true, nil
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
