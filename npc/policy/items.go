package policy

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc/budget"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// Compiled is a policy as it is understood, for those who tell what it means and do not enforce it.
type Compiled struct {
	// Isolates says for each direction whether the policy isolates the pods that it selects.
	Isolates [len(traffic.Directions)]bool
	// Invalid says why the policy allows nothing; nil if it could be compiled.
	Invalid error
	// Target chooses the pods that the policy isolates, in its own namespace.
	Target Choice
	// Rules holds the rules of each direction that the policy isolates in, in the order of the object. An invalid policy has none.
	Rules [len(traffic.Directions)][]CompiledRule
}

// CompiledRule has as many peers and ports as the object's rule. Without peers it is for everybody; without ports, for every protocol.
type CompiledRule struct {
	Peers []CompiledPeer
	Ports []CompiledPort
}

// CompiledPeer is one item of from or to: with a block, or with at least one Choice, or of a kind that is not known, which matches nobody.
type CompiledPeer struct {
	Block *CompiledBlock
	// Namespaces is nil without a namespaceSelector: the policy's own namespace is meant. Pods is nil without a podSelector: all pods are.
	Namespaces, Pods *Choice
}

// CompiledBlock is an ipBlock.
type CompiledBlock struct {
	CIDR   netip.Prefix
	Except []netip.Prefix
}

// CompiledPort is a protocol by its number, with a range of ports whose ends are both in it, or with a port's name; with neither,
// all its ports.
type CompiledPort struct {
	Protocol    uint8
	First, Last uint16
	Name        string
}

// CompileItems compiles a policy item by item. The object must not be changed afterwards.
func CompileItems(o *networkingv1.NetworkPolicy) Compiled {
	p := Compile(o, budget.Default())
	c := Compiled{Isolates: p.Isolates, Invalid: p.Invalid, Target: p.Target}
	for i := range p.Rules[traffic.Ingress] {
		c.Rules[traffic.Ingress] = append(c.Rules[traffic.Ingress], compileItems(o.Namespace, o.Spec.Ingress[i].From, o.Spec.Ingress[i].Ports))
	}
	for i := range p.Rules[traffic.Egress] {
		c.Rules[traffic.Egress] = append(c.Rules[traffic.Egress], compileItems(o.Namespace, o.Spec.Egress[i].To, o.Spec.Egress[i].Ports))
	}
	return c
}

// compileItems compiles each item of a valid rule for itself, which therefore does not fail.
func compileItems(namespace string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) (r CompiledRule) {
	for _, peer := range peers {
		spec, _, _ := compilePeer(namespace, peer)
		var c CompiledPeer
		if spec.Block != nil {
			c.Block = &CompiledBlock{spec.Block.Block.CIDR, spec.Block.Block.Except}
		}
		if peer.PodSelector != nil {
			c.Pods = &spec.Pods
		}
		if spec.Namespaces != nil {
			c.Namespaces = spec.Namespaces
		}
		r.Peers = append(r.Peers, c)
	}
	for i := range ports {
		specs, _ := compilePorts(ports[i : i+1])
		for _, spec := range specs {
			c := CompiledPort{Protocol: spec.Protocol, Name: spec.Name}
			for _, span := range spec.ranges {
				c.First, c.Last = span.first, span.last
			}
			r.Ports = append(r.Ports, c)
		}
	}
	return r
}
