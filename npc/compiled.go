package npc

import (
	"net/netip"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/npc/budget"
)

// Compiled is a policy as the model understands it, for those who tell what it means and do not enforce it.
type Compiled struct {
	// Isolates says for each direction whether the policy isolates the pods that it selects.
	Isolates [len(directions)]bool
	// Invalid says why the policy allows nothing; nil if it could be compiled.
	Invalid error
	// Target chooses the pods that the policy isolates, in its own namespace.
	Target Choice
	// Rules holds the rules of each direction that the policy isolates in, in the order of the object. An invalid policy has none.
	Rules [len(directions)][]CompiledRule
}

// CompiledRule has as many peers and ports as the object's rule. Without peers it is for everybody; without ports, for every protocol.
type CompiledRule struct {
	Peers []CompiledPeer
	Ports []CompiledPort
}

// CompiledPeer is one item of from or to: with a block, or with at least one choice, or of a kind that is not known, which matches nobody.
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

// Choice is a compiled label selector.
type Choice struct{ choice choice }

// Matches says whether an object with such labels is chosen.
func (c Choice) Matches(l map[string]string) bool { return c.choice.matches(labels.Set(l)) }

// Unmet are the requirements that labels do not meet. Possible is false if no labels could: a value is asked for that no label can have.
func (c Choice) Unmet(l map[string]string) (unmet labels.Requirements, possible bool) {
	if c.choice.Selector != nil {
		all, _ := c.choice.Requirements()
		for _, r := range all {
			if !r.Matches(labels.Set(l)) {
				unmet = append(unmet, r)
			}
		}
	}
	return unmet, !c.choice.nothing
}

// String is the selector as kubectl takes it; empty if it chooses everything.
func (c Choice) String() string {
	switch {
	case c.choice.nothing:
		return "a value that no label can have"
	case c.choice.Selector == nil:
		return ""
	}
	return c.choice.String()
}

// Compile compiles a policy. The object must not be changed afterwards.
func Compile(o *networkingv1.NetworkPolicy) Compiled {
	p := compilePolicy(o, budget.Default())
	c := Compiled{Isolates: p.isolates, Invalid: p.invalid, Target: Choice{p.target}}
	for i := range p.rules[Ingress] {
		c.Rules[Ingress] = append(c.Rules[Ingress], compileItems(o.Namespace, o.Spec.Ingress[i].From, o.Spec.Ingress[i].Ports))
	}
	for i := range p.rules[Egress] {
		c.Rules[Egress] = append(c.Rules[Egress], compileItems(o.Namespace, o.Spec.Egress[i].To, o.Spec.Egress[i].Ports))
	}
	return c
}

// compileItems compiles each item of a valid rule for itself, which therefore does not fail.
func compileItems(namespace string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) (r CompiledRule) {
	for _, peer := range peers {
		spec, _, _ := compilePeer(namespace, peer)
		var c CompiledPeer
		if spec.block != nil {
			c.Block = &CompiledBlock{spec.block.Block.CIDR, spec.block.Block.Except}
		}
		if peer.PodSelector != nil {
			c.Pods = &Choice{spec.pods}
		}
		if spec.namespaces != nil {
			c.Namespaces = &Choice{*spec.namespaces}
		}
		r.Peers = append(r.Peers, c)
	}
	for i := range ports {
		specs, _ := compilePorts(ports[i : i+1])
		for _, spec := range specs {
			c := CompiledPort{Protocol: spec.protocol, Name: spec.name}
			for _, span := range spec.ranges {
				c.First, c.Last = span.first, span.last
			}
			r.Ports = append(r.Ports, c)
		}
	}
	return r
}

// ProtocolName is a protocol's name in lower case, or its number.
func ProtocolName(number uint8) string { return strings.ToLower(protocolName(number)) }
