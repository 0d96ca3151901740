package policy

import (
	"iter"
	"strings"

	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// Rule is one ingress or egress rule with as many peers and ports as the object's rule. Without peers it matches every
// peer, without ports every protocol and port. Those of NetworkPolicies accept.
type Rule struct {
	Peers  []Peer
	Ports  []Port
	Action Action
}

// Peer is one item of from or to: a block, nodes, a domain name, or pods by at least one selector. A peer of an unknown kind has none
// of these and matches no pod.
type Peer struct {
	Block *ipblock.Block
	// Nodes selects nodes: the peer is all addresses of them. Only egress rules of cluster network policies have such
	// peers.
	Nodes *Selector
	// Name is a domain name, or *. and a domain for all names below it, in lower case: the peer is the addresses that a
	// resolver gives for it. Only egress rules of the Admin tier that accept have such peers.
	Name string
	// List is the key of all such names of the rule, by NamesKey: what resolvers give for one list is its own.
	List string
	// Namespace is the policy's own. It applies if Namespaces is nil.
	Namespace string
	// Namespaces is nil without a namespaceSelector, Pods without a podSelector. Nil Pods means all pods.
	Namespaces, Pods *Selector
}

// IsUnknown reports whether the peer is of an unknown kind.
func (p Peer) IsUnknown() bool {
	return p.Block == nil && p.Nodes == nil && p.Name == "" && p.Namespaces == nil && p.Pods == nil
}

// HasName reports whether the peer is a domain name that stands for a given one, in lower case.
func (p Peer) HasName(name string) bool {
	below, wild := strings.CutPrefix(p.Name, "*")
	return p.Name != "" && (name == p.Name || wild && strings.HasSuffix(name, below))
}

// NamesKey returns what names a list of domain names, which are sorted.
func NamesKey(names []string) string { return strings.Join(names, " ") }

// Blocks returns the blocks among the peers of rules.
func Blocks(rules iter.Seq[*Rule]) (out []ipblock.Block) {
	for r := range rules {
		for _, p := range r.Peers {
			if p.Block != nil {
				out = append(out, *p.Block)
			}
		}
	}
	return out
}

// peersField returns what the API calls the peers of a rule.
func peersField(d npc.Direction) string {
	if d == npc.Ingress {
		return "from"
	}
	return "to"
}

func compileRule(d npc.Direction, namespace string, peers []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort) (r Rule, err error) {
	for i, peer := range peers {
		p, err := compilePeer(namespace, peer)
		if err != nil {
			return r, errors.Wrapf(err, "%s[%d]", peersField(d), i)
		}
		r.Peers = append(r.Peers, p)
	}
	for i, port := range ports {
		p, err := compilePort(port)
		if err != nil {
			return r, errors.Wrapf(err, "ports[%d]", i)
		}
		r.Ports = append(r.Ports, p)
	}
	return r, nil
}

func compilePeer(namespace string, peer networkingv1.NetworkPolicyPeer) (p Peer, err error) {
	if peer.IPBlock != nil {
		if peer.PodSelector != nil || peer.NamespaceSelector != nil {
			return p, errors.New("both ipBlock and a selector are set")
		}
		block, err := ipblock.Compile(peer.IPBlock)
		if err != nil {
			return p, errors.Wrap(err, "ipBlock")
		}
		p.Block = &block
		return p, nil
	}
	p.Namespace = namespace
	if peer.PodSelector != nil {
		s, err := compileSelector(peer.PodSelector)
		if err != nil {
			return p, errors.Wrap(err, "podSelector")
		}
		p.Pods = &s
	}
	if peer.NamespaceSelector != nil {
		s, err := compileSelector(peer.NamespaceSelector)
		if err != nil {
			return p, errors.Wrap(err, "namespaceSelector")
		}
		p.Namespaces = &s
	}
	return p, nil
}
