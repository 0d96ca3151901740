package whocan

import (
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// addPorts splits the ports of a rule from others. Named ones are looked up on the pods that may be the destination.
func addPorts(to flow.Split, rule *policy.Rule, destinations []*npc.Pod) {
	for _, port := range rule.Ports {
		to.Add(port.Protocol, port.First, port.Last)
		if port.Name == "" {
			continue
		}
		for _, p := range destinations {
			for _, named := range p.Ports {
				if named.Name == port.Name && port.HasProtocol(named.Protocol) {
					to.Add(named.Protocol, named.Port, named.Port)
				}
			}
		}
	}
}

// Span is ports with one answer.
type Span struct {
	Ports flow.Ports `json:"ports"`
	// Reach is allowed, denied, partly (in one family), never (no addresses of the same family) or unknown. By is what
	// decides, in words.
	Reach string `json:"verdict"`
	By    string `json:"by,omitempty"`
}

// Reached reports whether the ports are reached in a family at least.
func (s Span) Reached() bool {
	return s.Reach == string(reachability.CellAllowed) || s.Reach == string(reachability.CellPartly)
}

// Unknown reports whether that is not known, because something could not be read.
func (s Span) Unknown() bool { return s.Reach == string(reachability.CellUnknown) }

// merge joins spans of neighbouring ports with the same answer, and those of all protocols if the answer is the same
// for everything.
func merge(spans []Span) (out []Span) {
	for _, s := range spans {
		if n := len(out) - 1; n >= 0 && out[n].Ports.Protocol == s.Ports.Protocol && out[n].Reach == s.Reach &&
			out[n].By == s.By {
			out[n].Ports.Last = s.Ports.Last
		} else {
			out = append(out, s)
		}
	}
	if len(out) != len(npc.PortProtocols)+1 ||
		slices.ContainsFunc(out, func(s Span) bool { return s.Reach != out[0].Reach || s.By != out[0].By }) {
		return out
	}
	out[0].Ports = flow.Ports{}
	return out[:1]
}
