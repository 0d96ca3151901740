package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// String returns the verdict with all its reasons, in lines.
func (v Verdict) String() string {
	return fmt.Sprintf("%s -> %s, %s: %s\n", v.Flow.From, v.Flow.To, v.Flow.Service, v.word()) + v.reasons()
}

// word returns the verdict in a word.
func (v Verdict) word() string {
	if v.Unknown {
		return string(unknown)
	}
	return allowed(v.Allowed)
}

func (v Verdict) reasons() string { return v.Egress.text(v.Flow.From) + v.Ingress.text(v.Flow.To) }

// Text returns verdicts between the same pods in lines. If the reasons of all are the same, it returns them once,
// without addresses.
func Text(verdicts []Verdict) string {
	same := len(verdicts) > 1
	var b strings.Builder
	for _, v := range verdicts {
		same = same && v.reasons() == verdicts[0].reasons()
		b.WriteString(v.String())
	}
	if !same {
		return b.String()
	}
	v := verdicts[0]
	v.Flow.From.Addr, v.Flow.To.Addr = netip.Addr{}, netip.Addr{}
	return v.String()
}

func allowed(ok bool) string {
	if ok {
		return "allowed"
	}
	return "denied"
}

// Head returns what a side of a flow decides, and why, in one line. The end is the side's.
func (s Side) Head(e flow.End) string {
	name := s.Pod
	switch {
	case name == "" && e.Addr.IsValid():
		name = e.Addr.String()
	case name == "":
		name = e.String()
	}
	head := "egress from "
	if s.Direction == npc.Ingress {
		head = "ingress to "
	}
	if s.Unknown != "" {
		return fmt.Sprintf("%s%s: unknown: %s", head, name, s.Unknown)
	}
	return fmt.Sprintf("%s%s: %s", head, name, Outcome{s.Allowed, s.Reason, s.By}.text(s.sentence(s.Reason)))
}

// text returns a side in lines.
func (s Side) text(e flow.End) string {
	lines := []string{s.Head(e)}
	if s.Conflict != "" {
		lines = append(lines, "  conflict: "+s.Conflict)
	}
	for _, p := range s.ClusterPolicies {
		lines = append(lines, p.lines()...)
	}
	for _, p := range s.Policies {
		lines = append(lines, p.lines()...)
	}
	if s.Without != nil {
		lines = append(lines, "  without it: "+s.Without.text(s.sentence(s.Without.Reason)))
	}
	return strings.Join(lines, "\n") + "\n"
}

// text returns the outcome in words.
func (o Outcome) text(sentence string) string {
	if o.By != nil {
		return allowed(o.Allowed) + " by " + o.By.String()
	}
	return allowed(o.Allowed) + ": " + sentence
}

// Closed returns why the address of the side's pod is closed, in words; empty if it is not.
func (s Side) Closed() string {
	if s.Reason == conflicting || s.Reason == waiting {
		return s.sentence(s.Reason)
	}
	return ""
}

// sentence returns a reason in words. They are others where there are cluster network policies.
func (s Side) sentence(r Reason) string {
	switch {
	case r == conflicting && !s.isolated:
		return "a pod of its node to which a cluster network policy denies something claims the same address, " +
			"so that nothing is allowed"
	case r == waiting && !s.isolated:
		return "a cluster network policy denies something to it and its address is not known, " +
			"so that nothing is allowed, unless weave-npc runs with --fail-closed=never"
	case r == notIsolated && len(s.ClusterPolicies) > 0:
		return "no cluster network policy decides it, and no policy isolates it"
	case r == ownNode && s.tiered && s.Direction == npc.Ingress:
		return "its own node always reaches a pod"
	case r == ownNode && s.tiered:
		return "a pod reaches its own node, unless a cluster network policy denies it"
	}
	return r.sentence()
}

// sentence returns the reason in words.
func (r Reason) sentence() string {
	switch r {
	case noPod:
		return "it is no pod, so that no policy isolates it"
	case otherNode:
		return "another node enforces its policies"
	case itself:
		return "a pod reaches itself"
	case ownNode:
		return "a pod and its own node always reach each other"
	case multicast:
		return "multicast passes, unless weave-npc runs with --allow-mcast=false"
	case conflicting:
		return "an isolated pod of its node claims the same address, so that nothing is allowed"
	case waiting:
		return "it is isolated and its address is not known, so that nothing is allowed, " +
			"unless weave-npc runs with --fail-closed=never"
	case notIsolated:
		return "no policy isolates it"
	}
	return string(r)
}

func (p PolicyReason) lines() []string {
	if p.Invalid != "" {
		return []string{fmt.Sprintf("  policy %s: isolates, and allows nothing: it is invalid: %s", p.Policy,
			p.Invalid)}
	}
	if len(p.Rules) == 0 {
		return []string{fmt.Sprintf("  policy %s: isolates, and has no rule", p.Policy)}
	}
	lines := []string{fmt.Sprintf("  policy %s: isolates", p.Policy)}
	for _, r := range p.Rules {
		lines = append(lines, fmt.Sprintf("    rule %d: %s", r.Number, r))
	}
	return lines
}

// String returns the rule's verdict as one sentence.
func (r RuleReason) String() string {
	if r.Allows {
		return "allows it"
	}
	return "no: " + r.misses()
}

// misses returns why a rule does not match, in words.
func (m matching) misses() string {
	var why []string
	if !m.peerFits() {
		why = spelling.Texts(m.Peers)
	}
	if !m.PortFits() {
		why = append(why, spelling.Texts(m.Ports)...)
	}
	return strings.Join(why, "; ")
}

// named returns which domain name the other end has, for a rule that matches.
func (m matching) named() string {
	for _, p := range m.Peers {
		if p.Mismatch == fits && p.Has != "" {
			return ": " + p.String()
		}
	}
	return ""
}
