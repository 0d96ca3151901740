// Package explain finds out which policy, and which rule of it, allows or denies a flow, and why.
//
// It evaluates the policies themselves, not the rules that the kernel is given for them.
//
//	v := explain.Explain(c.View(), flow.Flow{From: from, To: to, Service: s})
//	fmt.Print(v)    // a verdict, then a line for each reason
//
//	Verdict ─▶ Side (egress, ingress) ─▶ PolicyReason ─▶ RuleReason ─▶ PeerReason, PortReason
//
// It does not know what the kernel holds, nor how a flow could be allowed.
package explain

import (
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Explain returns what happens to a flow. The pods that its ends name must exist.
func Explain(c *cluster.View, f flow.Flow) Verdict {
	v := Verdict{Flow: f, Egress: side(c, f, npc.Egress), Ingress: side(c, f, npc.Ingress)}
	v.Allowed = v.Egress.Allowed && v.Ingress.Allowed
	v.Unknown = !v.Allowed && (v.Egress.Allowed || v.Egress.Unknown != "") &&
		(v.Ingress.Allowed || v.Ingress.Unknown != "")
	return v
}

// peerEnd returns an end as a node sees it.
func peerEnd(c *cluster.View, e flow.End, node string) end {
	if e.Addr.IsValid() {
		return end{e, c.Owner(e.Addr, node)}
	}
	return end{e, c.Pods[e.Pod]}
}

// ownEnd returns an end as the node of its pod sees it. A local pod's packets are those of the pod that owns the
// address.
func ownEnd(c *cluster.View, e flow.End, node string, d npc.Direction) end {
	p := c.Pods[e.Pod]
	if p != nil {
		node = p.Node
	}
	if !e.Addr.IsValid() || p != nil && p.StaleAddrs {
		return end{e, p}
	}
	if owner := c.Owner(e.Addr, node); owner != nil {
		return end{e, owner}
	}
	if p == nil {
		p = waitingAt(c, e, node, d)
	}
	return end{e, p}
}

// side returns the verdict for one direction.
func side(c *cluster.View, f flow.Flow, d npc.Direction) Side {
	from, to := f.Ends(d)
	own := ownEnd(c, from, f.Node, d)
	s := Side{Direction: d, Allowed: true, Reason: noPod, tiered: len(c.ClusterPolicies) > 0}
	if own.pod == nil {
		if why := cluster.UnreadablePod(c, own.End); why != "" {
			s.Pod = own.Pod
			s.leaveOpen(why)
		}
		return s
	}
	s.Pod = own.String()
	peer := peerEnd(c, to, own.pod.Node)
	toItself := own.pod == peer.pod || f.From.Addr.IsValid() && f.From.Addr == f.To.Addr
	toNode := peer.pod == nil && peer.Addr.IsValid() && c.NodeHas(own.pod.Node, peer.Addr)
	q := question{View: c, own: own, peer: peer, direction: d, Service: f.Service}
	switch {
	case toItself:
		q.exempt = itself
	case toNode:
		q.exempt = ownNode
	}
	conflict := conflictOf(c, own, d, q.exempt)
	s.Conflict = conflict.text
	switch {
	case f.Node != "" && own.pod.Node != f.Node:
		s.Reason = otherNode
		return s
	case toItself && !f.ThroughService, toNode && d == npc.Ingress:
		s.Reason, s.stays = q.exempt, true
		return s
	case f.To.Addr.IsMulticast():
		s.Reason = multicast
		return s
	}
	s.stays, s.toNode = q.exempt != "", q.exempt == ownNode
	if conflict.closes != "" {
		s.Allowed, s.Reason, s.isolated = false, conflict.closes, conflict.isolated
		return s
	}
	s.ask(q)
	names := q.names()
	if c.Unreadable.Any() || len(names) > 0 {
		s.Without = nil // what could not be read may decide that too
		if why := q.open(names); why != "" {
			s.leaveOpen(why)
		}
	}
	return s
}

// leaveOpen makes the side one whose verdict is not known.
func (s *Side) leaveOpen(why string) { s.Allowed, s.Reason, s.By, s.Unknown = false, unknown, nil, why }

// question is what a rule is asked.
type question struct {
	*cluster.View
	own, peer end
	direction npc.Direction
	flow.Service
	// exempt is why NetworkPolicies do not apply to the flow; empty if they do.
	exempt Reason
}

// destination returns the pod that the flow goes to, on which names of ports are looked up; nil if it is no pod.
func (q question) destination() *npc.Pod {
	if q.direction == npc.Egress {
		return q.peer.pod
	}
	return q.own.pod
}

// ask asks the policies, in the order of the tiers, and what they would answer without the rule that decides.
func (s *Side) ask(q question) {
	a := q.answer(nil)
	s.Allowed, s.Reason, s.By, s.ClusterPolicies, s.Policies = a.Allowed, a.Reason, a.By, a.clusterPolicies, a.policies
	if s.By != nil {
		without := q.answer(s.By)
		s.Without = &without.Outcome
	}
}

// answer is what the policies say of a flow, and which were asked.
type answer struct {
	Outcome
	clusterPolicies []ClusterPolicyReason
	policies        []PolicyReason
}

// decide asks rules about the flow, and calls a function with each decision except to pass the flow on.
func (q question) decide(
	rules policy.Applied[cluster.Rule], matches func(cluster.Rule) policy.Fit, decided func(policy.Decision[cluster.Rule]),
) {
	ask := policy.Question[policy.Fit, cluster.Rule]{Sets: policy.Fits(), Exempt: q.exempt != "",
		Action: cluster.Rule.Does, Matches: matches,
		Decide: func(d policy.Decision[cluster.Rule], _, _ policy.Fit) {
			if d.Action != policy.Pass {
				decided(d)
			}
		}}
	ask.Ask(&rules, policy.Always)
}

// answer asks the policies without one of the rules; nil for all of them.
func (q question) answer(without *Decision) (a answer) {
	applied := q.Applied(q.own.pod, q.direction)
	q.decide(applied, func(r cluster.Rule) policy.Fit {
		if r.Of == nil {
			return policy.FitOf(q.fit(*r.Rule) == policy.Always)
		}
		return policy.FitOf(q.askTier(&a, r, without))
	}, func(d policy.Decision[cluster.Rule]) { a.Outcome = q.outcome(d) })
	if a.By == nil && applied.Isolated == policy.Always {
		q.skipBaseline(&a)
		if q.exempt == "" {
			q.networkPolicies(&a)
		}
	}
	return a
}

// outcome returns what a decision about the flow means.
func (q question) outcome(d policy.Decision[cluster.Rule]) Outcome {
	o := Outcome{Allowed: d.Action == policy.Accept}
	switch {
	case d.Rule.Of != nil:
		o.By, o.Reason = q.decision(d.Rule), tierDenies
		if o.Allowed {
			o.Reason = tierAccepts
		}
	case d.Cause == policy.ByRule:
		o.Reason = ruleAllows
	case d.Cause == policy.Exempt:
		o.Reason = q.exempt
	case d.Cause == policy.NotIsolated:
		o.Reason = notIsolated
	case q.own.pod.Unlabelled:
		o.Reason = unlabelled
	default:
		o.Reason = nothingAllows
	}
	return o
}

// networkPolicies adds what the policies say that isolate a pod.
func (q question) networkPolicies(a *answer) {
	isolating, _ := q.Isolating(q.own.pod, q.direction)
	for _, p := range isolating {
		r := PolicyReason{Policy: p.Key()}
		if p.Invalid != nil {
			r.Invalid = p.Invalid.Error()
		}
		for i, rule := range p.Rules[q.direction] {
			m := q.match(rule)
			reason := RuleReason{Number: i + 1, Allows: m.fits(), matching: m}
			r.Allows = r.Allows || reason.Allows
			r.Rules = append(r.Rules, reason)
		}
		a.policies = append(a.policies, r)
	}
}

// match compares a rule's peers and ports with the flow.
func (q question) match(rule policy.Rule) (m matching) {
	for _, peer := range rule.Peers {
		m.Peers = append(m.Peers, peerReason(q.View, peer, q.peer))
	}
	for _, port := range rule.Ports {
		r := portReason(port, q.Service, q.destination())
		r.Unreadable = q.portFit(port) == policy.Maybe
		m.Ports = append(m.Ports, r)
	}
	return m
}

// outcomes are the verdicts that a direction may have by the policies that could be read. A rule that may match, and a
// policy that may choose the pod, leave both what they say and what follows.
type outcomes struct{ allows, denies bool }

// names returns the domain names that a rule accepts which applies to the pod, if the other end may have one of them:
// it is an address of no pod.
func (q question) names() (names []string) {
	if q.peer.pod != nil || q.direction == npc.Ingress || q.Learned != nil {
		return nil
	}
	for _, of := range q.Choosing(q.own.pod) {
		for _, r := range of.Written[q.direction] {
			for _, p := range r.Peers {
				if p.Name != "" && !slices.Contains(names, p.Name) {
					names = append(names, p.Name)
				}
			}
		}
	}
	return names
}

// open returns what could not be read and may decide; empty if the verdict is the same whatever that is. The names are
// those that may decide.
func (q question) open(names []string) string {
	pod := q.own.pod
	conflict := q.Unreadable.Any() && q.own.Addr.IsValid() &&
		(pod.StaleAddrs || q.ClaimsNodes(pod, q.own.Addr) || len(q.ConflictingPods(q.own.Addr, pod)) > 0)
	if found := q.outcomes(); !conflict && found.allows != found.denies {
		return ""
	}
	switch {
	case !q.Unreadable.Any():
		return "it may be an address of " + strings.Join(names, ", ") +
			": no node's learned addresses of domain names are known here"
	case q.Unreadable.Policies.Lacks(pod.Namespace):
		return "network policies of namespace " + pod.Namespace + " cannot be read: " + q.Unreadable.Policies.Reason
	case q.peer.pod == nil && cluster.UnreadablePod(q.View, q.peer.End) != "":
		return cluster.UnreadablePod(q.View, q.peer.End)
	}
	for _, namespace := range []string{q.peer.namespace(), pod.Namespace} {
		if q.Unreadable.Namespaces.Lacks(namespace) && namespace != "" {
			return "the labels of namespace " + namespace + " cannot be read: " + q.Unreadable.Namespaces.Reason
		}
	}
	return "some objects that decide about a conflicting address cannot be read"
}

// outcomes asks the policies as answer does, those too that may choose the pod.
func (q question) outcomes() (found outcomes) {
	pod := q.own.pod
	hidden := q.Unreadable.Policies.Lacks(pod.Namespace)
	applied := q.Applied(pod, q.direction)
	if applied.Isolated == policy.Never && (q.LegacyNetpol && q.direction == npc.Ingress &&
		q.Unreadable.Namespaces.Lacks(pod.Namespace) || !q.LegacyNetpol && hidden) {
		applied.Isolated = policy.Maybe
	}
	applied.Tiers = [len(policy.Tiers)][]cluster.Rule{}
	chooses := map[*policy.Cluster]policy.Fit{nil: policy.Always} // nil stands for NetworkPolicies
	for _, p := range q.ClusterPolicies {
		if fit := q.Selects(p, pod); fit != policy.Never {
			chooses[p] = fit
			applied.Tiers[p.Tier] = append(applied.Tiers[p.Tier], cluster.WrittenRules(p, q.direction)...)
		}
	}
	q.decide(applied, func(r cluster.Rule) policy.Fit {
		return min(q.fit(*r.Rule), chooses[r.Of])
	}, func(d policy.Decision[cluster.Rule]) {
		// A policy that could not be read may allow what no rule does.
		found.allows = found.allows || d.Action == policy.Accept || d.Cause == policy.NoRule && hidden
		found.denies = found.denies || d.Action == policy.Deny
	})
	return found
}

// fit reports whether a rule matches.
func (q question) fit(rule policy.Rule) policy.Fit {
	peers, ports := policy.Never, policy.Never
	for _, p := range rule.Peers {
		switch mismatch(q.View, p, q.peer) {
		case fits:
			peers = policy.Always
		case namespaceUnreadable, podUnreadable, nameUnknown:
			peers = max(peers, policy.Maybe)
		}
	}
	for _, p := range rule.Ports {
		ports = max(ports, q.portFit(p))
	}
	if len(rule.Peers) == 0 {
		peers = policy.Always
	}
	if len(rule.Ports) == 0 {
		ports = policy.Always
	}
	return min(peers, ports)
}

// portFit reports whether an item of a rule's ports matches. What names the ports of a pod that could not be read have
// is not known.
func (q question) portFit(p policy.Port) policy.Fit {
	switch {
	case PortFits(p, q.Service, q.destination()):
		return policy.Always
	case p.Name != "" && p.HasProtocol(q.Protocol) && q.destination() == nil && q.direction == npc.Egress &&
		cluster.UnreadablePod(q.View, q.peer.End) != "":
		return policy.Maybe
	}
	return policy.Never
}
