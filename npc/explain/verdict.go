package explain

import (
	"net/netip"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/objectkey"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Verdict is what becomes of a flow, and why.
type Verdict struct {
	Flow    Flow `json:"flow"`
	Allowed bool `json:"allowed"`
	// Egress is what isolates the source, Ingress what isolates the destination. Both must let the flow through.
	Egress  Side `json:"egress"`
	Ingress Side `json:"ingress"`
}

// Side is one direction of a verdict.
type Side struct {
	Direction npc.Direction `json:"-"`
	// Pod is the pod that policies may isolate, by namespace/name; empty if the end is none.
	Pod     string  `json:"pod,omitempty"`
	Allowed bool    `json:"allowed"`
	Because Because `json:"because"`
	// Policies are those that isolate the pod in this direction, in the order of their names.
	Policies []PolicyReason `json:"policies,omitempty"`
}

// Because is why a side lets a flow through or does not.
type Because string

// The reasons of a side.
const (
	// NoPod: the end is no pod, so that nothing isolates it.
	NoPod Because = "no pod"
	// OtherNode: its pod is not on the node that was asked for.
	OtherNode Because = "other node"
	// Itself: a pod reaches itself.
	Itself Because = "itself"
	// OwnNode: a pod and its node reach each other.
	OwnNode Because = "own node"
	// Multicast: goes to a multicast address, which is allowed unless --allow-mcast=false.
	Multicast Because = "multicast"
	// NotIsolated: no policy isolates the pod in this direction.
	NotIsolated Because = "not isolated"
	// RuleAllows: a rule of a policy allows the flow.
	RuleAllows Because = "a rule allows it"
	// NothingAllows: policies isolate the pod, and no rule allows the flow.
	NothingAllows Because = "no rule allows it"
)

// PolicyReason is what one policy says of a flow.
type PolicyReason struct {
	// Policy is its namespace/name.
	Policy string `json:"policy"`
	Allows bool   `json:"allows"`
	// Invalid is why the policy cannot be compiled, and allows nothing; empty if it can.
	Invalid string       `json:"invalid,omitempty"`
	Rules   []RuleReason `json:"rules,omitempty"`
}

// RuleReason is what one rule says.
type RuleReason struct {
	// Number counts the rules of a direction from 1.
	Number int  `json:"rule"`
	Allows bool `json:"allows"`
	// Peers and Ports say of each of the rule's items whether it fits. A rule without peers fits every peer, one without ports every port.
	Peers []PeerReason `json:"peers,omitempty"`
	Ports []PortReason `json:"ports,omitempty"`
}

// PeerFits says whether the flow's other end is one of the rule's peers.
func (r RuleReason) PeerFits() bool {
	for _, p := range r.Peers {
		if p.Miss == PeerFits {
			return true
		}
	}
	return len(r.Peers) == 0
}

// PortFits says whether the flow's protocol and port are among the rule's.
func (r RuleReason) PortFits() bool {
	for _, p := range r.Ports {
		if p.Fits {
			return true
		}
	}
	return len(r.Ports) == 0
}

// end is an end of a flow, and the pod that has it, if any.
type end struct {
	End
	pod *npc.Pod
}

// String is the end as a sentence names it.
func (e end) String() string {
	if e.pod != nil {
		return objectkey.Of(e.pod.Namespace, e.pod.Name)
	}
	return e.End.String()
}

// seen is an end as a node sees it.
func (w *World) seen(e End, node string) end {
	if e.Addr.IsValid() {
		return end{e, w.owner(e.Addr, node)}
	}
	return end{e, w.pods[e.Pod]}
}

// own is an end as its own node sees it.
func (w *World) own(e End, node string) end {
	if e.Pod != "" {
		return end{e, w.pods[e.Pod]}
	}
	return w.seen(e, node)
}

// Explain says what becomes of a flow. An end that names a pod is taken for one that there is.
func (w *World) Explain(f Flow) Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.explain(f)
}

func (w *World) explain(f Flow) Verdict {
	v := Verdict{Flow: f, Egress: w.side(f, npc.Egress), Ingress: w.side(f, npc.Ingress)}
	v.Allowed = v.Egress.Allowed && v.Ingress.Allowed
	return v
}

// side judges one direction.
func (w *World) side(f Flow, d npc.Direction) Side {
	ownEnd, peerEnd := f.From, f.To
	if d == npc.Ingress {
		ownEnd, peerEnd = f.To, f.From
	}
	own := w.own(ownEnd, f.Node)
	s := Side{Direction: d, Allowed: true, Because: NoPod}
	if own.pod == nil {
		return s
	}
	s.Pod = own.String()
	peer := w.seen(peerEnd, own.pod.Node)
	isolating := w.isolating(own.pod, d)
	switch {
	case f.Node != "" && own.pod.Node != f.Node:
		s.Because = OtherNode
	case own.pod == peer.pod || f.From.Addr.IsValid() && f.From.Addr == f.To.Addr:
		s.Because = Itself
	case peer.Addr.IsValid() && w.isOwnNode(peer.Addr, own.pod):
		s.Because = OwnNode
	case f.To.Addr.IsMulticast():
		s.Because = Multicast
	case !w.isIsolated(own.pod, d, isolating):
		s.Because = NotIsolated
	default:
		w.judge(&s, isolating, question{own: own, peer: peer, direction: d, Service: f.Service})
	}
	return s
}

// isolating are the policies that isolate a pod in a direction; with LegacyNetpol, those that may allow something.
func (w *World) isolating(p *npc.Pod, d npc.Direction) []*Policy {
	var out []*Policy
	for _, q := range w.policiesOf(p) {
		if q.Isolates[d] {
			out = append(out, q)
		}
	}
	return out
}

func (w *World) isIsolated(p *npc.Pod, d npc.Direction, isolating []*Policy) bool {
	if w.LegacyNetpol {
		return d == npc.Ingress && w.namespaces[p.Namespace].DefaultDeny
	}
	return len(isolating) > 0
}

// question is what a rule is asked.
type question struct {
	own, peer end
	direction npc.Direction
	Service
}

// destination is the pod that the flow goes to, nil if it is none: names of ports are looked up on it.
func (q question) destination() *npc.Pod {
	if q.direction == npc.Egress {
		return q.peer.pod
	}
	return q.own.pod
}

// judge asks the policies that isolate a pod.
func (w *World) judge(s *Side, isolating []*Policy, q question) {
	s.Allowed, s.Because = false, NothingAllows
	for _, p := range isolating {
		r := PolicyReason{Policy: p.Key()}
		if p.Invalid != nil {
			r.Invalid = p.Invalid.Error()
		}
		for i, rule := range p.Rules[q.direction] {
			reason := w.askRule(rule, p, q)
			reason.Number = i + 1
			r.Allows = r.Allows || reason.Allows
			r.Rules = append(r.Rules, reason)
		}
		if r.Allows {
			s.Allowed, s.Because = true, RuleAllows
		}
		s.Policies = append(s.Policies, r)
	}
}

func (w *World) askRule(rule policy.CompiledRule, p *Policy, q question) RuleReason {
	var r RuleReason
	for _, peer := range rule.Peers {
		r.Peers = append(r.Peers, w.askPeer(peer, p.Object.Namespace, q))
	}
	for _, port := range rule.Ports {
		r.Ports = append(r.Ports, askPort(port, q))
	}
	r.Allows = r.PeerFits() && r.PortFits()
	return r
}

// InBlock reports whether an address is in a block, and in which of its excepts, if any.
func InBlock(b *policy.CompiledBlock, a netip.Addr) (in bool, except netip.Prefix) {
	if !b.CIDR.Contains(a) {
		return false, except
	}
	for _, e := range b.Except {
		if e.Contains(a) {
			return false, e
		}
	}
	return true, except
}
