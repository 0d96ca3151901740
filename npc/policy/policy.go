// Package policy compiles NetworkPolicies.
package policy

import (
	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc/budget"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// Policy is a NetworkPolicy as it is enforced.
type Policy struct {
	// Isolates says for each direction whether the policy isolates the pods that it selects.
	Isolates [len(traffic.Directions)]bool
	// Target chooses the pods that the policy isolates, in its own namespace.
	Target Choice
	// Rules holds the rules of each direction that the policy isolates in. An invalid policy has none.
	Rules [len(traffic.Directions)][]Rule
	// Cost is what the rules come to.
	Cost budget.Cost
	// Invalid says why the policy allows nothing; nil if it could be compiled.
	Invalid error
}

// Compile makes a policy of an API object, which must not be changed afterwards. One that is invalid isolates what it selects, or
// its whole namespace if its podSelector is what is wrong, and allows nothing.
func Compile(o *networkingv1.NetworkPolicy, limits budget.Limits) Policy {
	p := Policy{}
	types := o.Spec.PolicyTypes
	if len(types) == 0 {
		p.Isolates[traffic.Ingress] = true
		p.Isolates[traffic.Egress] = len(o.Spec.Egress) > 0
	}
	for _, t := range types {
		switch t {
		case networkingv1.PolicyTypeIngress:
			p.Isolates[traffic.Ingress] = true
		case networkingv1.PolicyTypeEgress:
			p.Isolates[traffic.Egress] = true
		default:
			p.Isolates = [len(traffic.Directions)]bool{true, true} // whatever it was to mean, it was not to allow
			p.Invalid = errors.Errorf("spec.policyTypes: %q is neither Ingress nor Egress", t)
		}
	}
	if err := p.compile(o); err != nil {
		p.Invalid = err
	} else if err := limits.Check(p.needs()); err != nil {
		p.Invalid = errors.Wrap(err, "spec")
	}
	if p.Invalid != nil {
		p.Rules = [len(traffic.Directions)][]Rule{}
	}
	p.Cost = p.needs()
	return p
}

func (p *Policy) compile(o *networkingv1.NetworkPolicy) (err error) {
	if p.Target, err = compileSelector(&o.Spec.PodSelector); err != nil {
		p.Target = Choice{}
		return errors.Wrap(err, "spec.podSelector")
	}
	if p.Isolates[traffic.Ingress] {
		for i, r := range o.Spec.Ingress {
			rule, err := compileRule(o.Namespace, r.From, r.Ports)
			if err != nil {
				return errors.Wrapf(err, "spec.ingress[%d]", i)
			}
			p.Rules[traffic.Ingress] = append(p.Rules[traffic.Ingress], rule)
		}
	}
	if p.Isolates[traffic.Egress] {
		for i, r := range o.Spec.Egress {
			rule, err := compileRule(o.Namespace, r.To, r.Ports)
			if err != nil {
				return errors.Wrapf(err, "spec.egress[%d]", i)
			}
			p.Rules[traffic.Egress] = append(p.Rules[traffic.Egress], rule)
		}
	}
	return nil
}
