// Package policy compiles policies, each of them once, into two forms of the same rules.
//
// Rules has the peers and ports of the object in their order: it answers what a policy means. Merged has as few matches
// as enforce the same: it is what the kernel is given.
//
//	NetworkPolicy ──Compile──▶ Policy ─┬─ Rules   one Peer or Port per item      ▶ packages of npc/analysis
//	                                   └─ Merged  blocks united, ports merged    ▶ npc/enforce
//	ClusterNetworkPolicy ──CompileCluster──▶ Cluster: rules with actions, in both forms
//	rules of a pod (Applied) ──Question.Ask──▶ Decision: what the tiers, in their order, decide about flows
//
// It knows nothing of pods, nodes, sets or chains.
package policy

import (
	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
)

// Policy is a compiled NetworkPolicy.
type Policy struct {
	// Isolates reports for each direction whether the policy isolates the pods that it selects.
	Isolates [len(npc.Directions)]bool
	// Target selects the pods that the policy isolates, in its own namespace.
	Target Selector
	// Rules holds the rules of each direction that the policy isolates in, in the order of the object. An invalid
	// policy has none.
	Rules [len(npc.Directions)][]Rule
	// Merged holds the same rules, merged.
	Merged [len(npc.Directions)][]MergedRule
	// Cost is what the merged rules need in the kernel.
	Cost quota.Cost
	// Invalid is the reason why the policy allows nothing; nil if it could be compiled.
	Invalid error
}

// Compile compiles an API object, which must not be changed afterwards. An invalid policy isolates the pods that it
// selects, or its whole namespace if its podSelector is invalid, and allows nothing.
func Compile(o *networkingv1.NetworkPolicy, limits quota.Limits) Policy {
	p := Policy{}
	types := o.Spec.PolicyTypes
	if len(types) == 0 {
		p.Isolates[npc.Ingress] = true
		p.Isolates[npc.Egress] = len(o.Spec.Egress) > 0
	}
	for _, t := range types {
		switch t {
		case networkingv1.PolicyTypeIngress:
			p.Isolates[npc.Ingress] = true
		case networkingv1.PolicyTypeEgress:
			p.Isolates[npc.Egress] = true
		default:
			p.Isolates = [len(npc.Directions)]bool{true, true} // an unknown type must not open anything
			p.Invalid = errors.Errorf("spec.policyTypes: %q is neither Ingress nor Egress", t)
		}
	}
	if err := p.compile(o); err != nil {
		p.Invalid = err
	} else if err := limits.Check(p.needs()); err != nil {
		p.Invalid = errors.Wrap(err, "spec")
	}
	if p.Invalid != nil {
		p.Rules, p.Merged = [len(npc.Directions)][]Rule{}, [len(npc.Directions)][]MergedRule{}
	}
	p.Cost = p.needs()
	return p
}

func (p *Policy) compile(o *networkingv1.NetworkPolicy) (err error) {
	if p.Target, err = compileSelector(&o.Spec.PodSelector); err != nil {
		p.Target = Selector{}
		return errors.Wrap(err, "spec.podSelector")
	}
	if p.Isolates[npc.Ingress] {
		for i, r := range o.Spec.Ingress {
			if err := p.add(npc.Ingress, o.Namespace, r.From, r.Ports); err != nil {
				return errors.Wrapf(err, "spec.ingress[%d]", i)
			}
		}
	}
	if p.Isolates[npc.Egress] {
		for i, r := range o.Spec.Egress {
			if err := p.add(npc.Egress, o.Namespace, r.To, r.Ports); err != nil {
				return errors.Wrapf(err, "spec.egress[%d]", i)
			}
		}
	}
	return nil
}

// add compiles a rule and adds it in both forms.
func (p *Policy) add(
	d npc.Direction, namespace string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort,
) error {
	r, err := compileRule(d, namespace, peers, ports)
	if err != nil {
		return err
	}
	p.Rules[d], p.Merged[d] = append(p.Rules[d], r), append(p.Merged[d], r.merge())
	return nil
}

// needs returns the cost of the policy's merged rules and of the set of its target.
func (p *Policy) needs() quota.Cost {
	c := quota.Cost{Sets: 1}
	for _, of := range p.Merged {
		seen := map[string]bool{}
		for _, r := range of {
			c = c.Plus(r.cost(seen))
		}
	}
	return c
}
