package policy

import (
	"slices"

	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc/budget"
	"github.com/weave-npc/weave-npc/npc/ipblock"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// Rule is one ingress or egress rule of a policy.
type Rule struct {
	// AnyPeer says that the rule names no peers. Without it a rule without peers matches nobody.
	AnyPeer bool
	Peers   []Peer
	// AnyPort says that the rule names no ports: every protocol.
	AnyPort bool
	Ports   []Port
}

// Peer is one item of from or to: pods, or all address blocks of the rule that are of one family.
type Peer struct {
	Block *ipblock.Union
	// Namespace is that of a peer without a namespaceSelector.
	Namespace string
	// Namespaces is nil where there is no namespaceSelector.
	Namespaces *Choice
	Pods       Choice
}

func compileRule(namespace string, peers []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort) (Rule, error) {
	r := Rule{AnyPeer: len(peers) == 0, AnyPort: len(ports) == 0}
	var blocks [len(traffic.Families)][]ipblock.Block
	for i, peer := range peers {
		p, matches, err := compilePeer(namespace, peer)
		if err != nil {
			return r, errors.Wrapf(err, "peer %d", i)
		}
		switch {
		case p.Block != nil:
			f := traffic.FamilyOf(p.Block.Block.CIDR.Addr())
			blocks[f] = append(blocks[f], p.Block.Block)
		case matches:
			r.Peers = append(r.Peers, p)
		}
	}
	for _, of := range blocks {
		if len(of) > 0 {
			r.Peers = append(r.Peers, Peer{Block: ipblock.Of(of)})
		}
	}
	var err error
	r.Ports, err = compilePorts(ports)
	return r, err
}

// compilePeer says of a peer also whether it can match anything: one of a kind that we do not know cannot.
func compilePeer(namespace string, peer networkingv1.NetworkPolicyPeer) (p Peer, matches bool, err error) {
	if peer.IPBlock != nil {
		if peer.PodSelector != nil || peer.NamespaceSelector != nil {
			return p, false, errors.New("ipBlock stands beside a selector")
		}
		block, err := ipblock.Compile(peer.IPBlock)
		if err != nil {
			return p, false, errors.Wrap(err, "ipBlock")
		}
		p.Block = ipblock.Of([]ipblock.Block{block})
		return p, true, nil
	}
	if peer.PodSelector == nil && peer.NamespaceSelector == nil {
		return p, false, nil
	}
	p.Namespace = namespace
	if peer.PodSelector != nil {
		if p.Pods, err = compileSelector(peer.PodSelector); err != nil {
			return p, false, errors.Wrap(err, "podSelector")
		}
	}
	if peer.NamespaceSelector != nil {
		c, err := compileSelector(peer.NamespaceSelector)
		if err != nil {
			return p, false, errors.Wrap(err, "namespaceSelector")
		}
		p.Namespaces = &c
		if c.nothing {
			return p, false, nil
		}
	}
	return p, !p.Pods.nothing, nil
}

// crossLimit is how many rules the peers of one rule of a policy may come to with its ports. With more, its peers are one
// list of their sets: it is searched member by member, which takes as long as as many rules would, but for the ports that match only.
const crossLimit = 256

// Crosses reports whether the rule's peers have to be put together.
func (r Rule) Crosses() bool {
	return len(r.Peers) > 1 && len(r.Ports) > 1 && len(r.Peers)*len(r.Ports) > crossLimit
}

// cost is what a rule comes to, at most.
func (r Rule) cost() (c budget.Cost) {
	named := 0
	for _, p := range r.Ports {
		if p.Name != "" {
			named++
		}
	}
	for _, p := range r.Peers {
		if p.Block != nil {
			c.Entries += len(p.Block.Entries)
		}
	}
	if r.Crosses() {
		c.Rules, c.Sets, c.Entries = len(r.Ports), len(r.Peers)+1+named, c.Entries+len(r.Peers)
		return c
	}
	c.Rules, c.Sets = max(len(r.Peers), 1)*max(len(r.Ports), 1), max(len(r.Peers), 1)*(1+named)
	return c
}

// needs is what the policy's rules come to, and the set of its target.
func (p *Policy) needs() budget.Cost {
	c := budget.Cost{Sets: 1}
	for _, of := range p.Rules {
		for _, r := range of {
			c = c.Plus(r.cost())
		}
	}
	return c
}

// NeedsPeers reports whether the rule has a port for which its peers are matched as such, and not by a named port.
func (r Rule) NeedsPeers() bool {
	if r.Crosses() {
		return false
	}
	return r.AnyPort || slices.ContainsFunc(r.Ports, func(p Port) bool { return p.Name == "" })
}
