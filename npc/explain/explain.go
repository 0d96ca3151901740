package explain

import (
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// Explain returns what happens to a flow. The pods that its ends name must exist.
func Explain(c *cluster.View, f flow.Flow) Verdict {
	v := Verdict{Flow: f, Egress: side(c, f, traffic.Egress), Ingress: side(c, f, traffic.Ingress)}
	v.Allowed = v.Egress.Allowed && v.Ingress.Allowed
	return v
}

// peerEnd returns an end as a node sees it.
func peerEnd(c *cluster.View, e flow.End, node string) end {
	if e.Addr.IsValid() {
		return end{e, c.Owner(e.Addr, node)}
	}
	return end{e, c.Pods[e.Pod]}
}

// ownEnd returns an end as the node of its pod sees it. A local pod's packets are those of the pod that owns the address.
func ownEnd(c *cluster.View, e flow.End, node string, d traffic.Direction) end {
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
func side(c *cluster.View, f flow.Flow, d traffic.Direction) Side {
	from, to := f.From, f.To
	if d == traffic.Ingress {
		from, to = f.To, f.From
	}
	own := ownEnd(c, from, f.Node, d)
	s := Side{Direction: d, Allowed: true, Reason: noPod}
	if own.pod == nil {
		return s
	}
	s.Pod = own.String()
	peer := peerEnd(c, to, own.pod.Node)
	conflict := conflictOf(c, own, d)
	s.Conflict = conflict.text
	isolating, isolated := c.Isolating(own.pod, d)
	switch {
	case f.Node != "" && own.pod.Node != f.Node:
		s.Reason = otherNode
	case own.pod == peer.pod || f.From.Addr.IsValid() && f.From.Addr == f.To.Addr:
		s.Reason = itself
	case peer.pod == nil && peer.Addr.IsValid() && c.NodeHas(own.pod.Node, peer.Addr):
		s.Reason = ownNode
	case f.To.Addr.IsMulticast():
		s.Reason = multicast
	case conflict.closes != "":
		s.Allowed, s.Reason = false, conflict.closes
	case !isolated:
		s.Reason = notIsolated
	default:
		s.ask(isolating, question{View: c, own: own, peer: peer, direction: d, Service: f.Service})
	}
	return s
}

// question is what a rule is asked.
type question struct {
	*cluster.View
	own, peer end
	direction traffic.Direction
	flow.Service
}

// destination returns the pod that the flow goes to, on which names of ports are looked up; nil if it is no pod.
func (q question) destination() *npc.Pod {
	if q.direction == traffic.Egress {
		return q.peer.pod
	}
	return q.own.pod
}

// ask asks the policies that isolate a pod.
func (s *Side) ask(isolating []*cluster.Policy, q question) {
	s.Allowed, s.Reason = false, nothingAllows
	for _, p := range isolating {
		r := PolicyReason{Policy: p.Key()}
		if p.Invalid != nil {
			r.Invalid = p.Invalid.Error()
		}
		for i, rule := range p.Rules[q.direction] {
			reason := q.rule(rule)
			reason.Number = i + 1
			r.Allows = r.Allows || reason.Allows
			r.Rules = append(r.Rules, reason)
		}
		if r.Allows {
			s.Allowed, s.Reason = true, ruleAllows
		}
		s.Policies = append(s.Policies, r)
	}
}

func (q question) rule(rule policy.Rule) RuleReason {
	var r RuleReason
	for _, peer := range rule.Peers {
		r.Peers = append(r.Peers, peerReason(q.View, peer, q.peer))
	}
	for _, port := range rule.Ports {
		r.Ports = append(r.Ports, portReason(port, q.Service, q.destination()))
	}
	r.Allows = r.peerFits() && r.PortFits()
	return r
}
