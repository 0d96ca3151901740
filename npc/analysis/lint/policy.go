package lint

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
)

// checkPolicy checks one NetworkPolicy. Those that others cover are found by checkCovered.
func (l *linter) checkPolicy(p *networkingv1.NetworkPolicy, c *cluster.Policy) {
	s := policySubject(p)
	if c.Invalid != nil {
		l.add(invalidPolicy, s, "spec", c.Invalid.Error(), "")
		return
	}
	targets := l.checkTarget(p, c)
	l.checkTypes(p, c)
	for _, d := range npc.Directions {
		if !c.Isolates[d] {
			continue
		}
		for i, w := range writtenRules(p, d) {
			r := c.Rules[d][i]
			l.checkLists(s, w)
			l.checkPeers(s, w, r)
			l.checkPorts(s, w, r, d, targets)
		}
	}
	l.checkDNS(p, c, targets)
}

// checkTarget checks that a policy selects pods, and returns them.
func (l *linter) checkTarget(p *networkingv1.NetworkPolicy, c *cluster.Policy) []*group {
	const field = "spec.podSelector"
	s, targets := policySubject(p), l.selected(p.Namespace, nil, c.Target)
	found := l.podTypos(field, &p.Spec.PodSelector, p.Namespace, nil)
	var onHost []*npc.Pod
	for _, pod := range l.onHost[p.Namespace] {
		if c.Target.Matches(pod.Labels) {
			onHost = append(onHost, pod)
		}
	}
	switch {
	case len(targets) > 0:
		l.addTypos(s, found)
		if len(onHost) > 0 && len(c.Target.Keys()) > 0 { // an empty selector means all to which policies apply
			l.add(hostNetwork, s, field, fmt.Sprintf("selects %s, on the network of its node, "+
				"where policies do not apply", podName(onHost[0])), "")
		}
	case len(onHost) > 0:
		l.addAs(Warning, hostNetwork, s, field,
			fmt.Sprintf("selects no pod but %s, on the network of its node, where policies do not apply",
				podName(onHost[0])), "")
	case l.missing[p.Namespace] || l.elsewhere():
	case len(l.byNamespace[p.Namespace]) == 0:
		l.addAs(Note, selectsNothing, s, field, "selects no pod: namespace "+p.Namespace+" has none", "")
	default:
		l.add(selectsNothing, s, field,
			fmt.Sprintf("no pod of namespace %s has %s%s", p.Namespace, selectorText(c.Target), suggestions(found)), "")
	}
	return targets
}

// checkTypes looks for rules that policyTypes do not name, and for a policy whose name promises another type.
func (l *linter) checkTypes(p *networkingv1.NetworkPolicy, c *cluster.Policy) {
	s := policySubject(p)
	for _, d := range npc.Directions {
		field, written, n := "spec.ingress", p.Spec.Ingress != nil, len(p.Spec.Ingress)
		if d == npc.Egress {
			field, written, n = "spec.egress", p.Spec.Egress != nil, len(p.Spec.Egress)
		}
		if c.Isolates[d] || !written {
			continue
		}
		name := strings.ToUpper(d.String()[:1]) + d.String()[1:]
		if n > 0 {
			l.add(rulesIgnored, s, field,
				fmt.Sprintf("has no effect: policyTypes do not name %s, and %s stays free", name, d), "")
		} else {
			l.addAs(Warning, rulesIgnored, s, field,
				fmt.Sprintf("is empty and denies nothing: policyTypes do not name %s", name), "")
		}
	}
	if c.Isolates[npc.Egress] || p.Spec.Egress != nil {
		return
	}
	if strings.Contains(p.Name, "egress") {
		l.add(nameSaysEgress, s, "spec", "isolates ingress only, and egress is in its name", "")
		return
	}
	if len(c.Target.Keys()) == 0 && len(c.Rules[npc.Ingress]) == 0 && !l.deniesAllEgress(p.Namespace) {
		l.add(denyOneWay, s, "spec", "denies all ingress of the namespace, and egress stays free", "")
	}
}

// deniesAllEgress reports whether a policy isolates all pods of a namespace for egress.
func (l *pods) deniesAllEgress(namespace string) bool {
	return slices.ContainsFunc(l.view.Policies, func(p *cluster.Policy) bool {
		return p.Namespace == namespace && p.Isolates[npc.Egress] && len(p.Target.Keys()) == 0
	})
}

// checkLists looks for lists that are written and empty, and for rules that allow everything.
func (l *linter) checkLists(s subject, w writtenRule) {
	if w.peers != nil && len(w.peers) == 0 {
		other := map[string]string{"from": "source", "to": "destination"}[w.side]
		l.add(emptyList, s, w.field+"."+w.side, "is empty, which is every "+other, "")
	}
	if w.ports != nil && len(w.ports) == 0 {
		l.add(emptyList, s, w.field+".ports", "is empty, which is every protocol and port", "")
	}
	if w.peers == nil && w.ports == nil {
		l.add(allowsAll, s, w.field, "allows everything "+w.side+" everywhere", "")
	}
}
