package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
)

// String is the verdict with all its reasons, in lines.
func (v Verdict) String() string {
	return fmt.Sprintf("%s -> %s, %s: %s\n", v.Flow.From, v.Flow.To, v.Flow.Service, allowed(v.Allowed)) + v.reasons()
}

func (v Verdict) reasons() string { return v.Egress.text(v.Flow.From) + v.Ingress.text(v.Flow.To) }

// Text is verdicts between the same pods in lines; once, without addresses, if the reasons are the same for all.
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

// text is a side in lines; end is what it is for.
func (s Side) text(end End) string {
	name := s.Pod
	if name == "" {
		name = end.Addr.String()
	}
	way := "egress from "
	if s.Direction == npc.Ingress {
		way = "ingress to "
	}
	lines := []string{fmt.Sprintf("%s%s: %s: %s", way, name, allowed(s.Allowed), s.Because.Sentence())}
	for _, p := range s.Policies {
		lines = append(lines, p.lines()...)
	}
	return strings.Join(lines, "\n") + "\n"
}

// Sentence is the reason in words.
func (b Because) Sentence() string {
	switch b {
	case NoPod:
		return "it is no pod, so that no policy isolates it"
	case OtherNode:
		return "another node judges its pods"
	case Itself:
		return "a pod reaches itself"
	case OwnNode:
		return "a pod and its own node always reach each other"
	case Multicast:
		return "multicast passes, unless weave-npc runs with --allow-mcast=false"
	case NotIsolated:
		return "no policy isolates it"
	}
	return string(b)
}

func (p PolicyReason) lines() []string {
	if p.Invalid != "" {
		return []string{fmt.Sprintf("  policy %s: isolates, and allows nothing: it is invalid: %s", p.Policy, p.Invalid)}
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

// String is what the rule says, as one sentence.
func (r RuleReason) String() string {
	if r.Allows {
		return "allows it"
	}
	var why []string
	if !r.PeerFits() {
		for _, p := range r.Peers {
			why = append(why, p.String())
		}
	}
	if !r.PortFits() {
		for _, p := range r.Ports {
			why = append(why, p.String())
		}
	}
	return "no: " + strings.Join(why, "; ")
}
