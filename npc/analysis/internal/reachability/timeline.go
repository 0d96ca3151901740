package reachability

import (
	"slices"

	"github.com/weave-npc/weave-npc/npc/flow"
)

// PortChange has what opens and what closes between two subjects, in order. A port can be in both, if the families
// differ.
type PortChange struct{ Opens, Closes []flow.Ports }

// The bits of what differs for a service.
const (
	opens = 1 << iota
	closes
)

// timelines numbers the ways that differences may change from service to service. Number 0 is that nothing ever
// differs.
type timelines struct {
	steps []step
	known map[step]uint32
}

// step is a timeline that goes on with another difference from a service on.
type step struct {
	from    uint32
	service int32
	differs uint8
}

// next returns the timeline that goes on so.
func (t *timelines) next(from uint32, service int, differs uint8) uint32 {
	s := step{from, int32(service), differs}
	n, ok := t.known[s]
	if !ok {
		n = uint32(len(t.steps))
		t.known[s] = n
		t.steps = append(t.steps, s)
	}
	return n
}

// changes returns the change of each timeline.
func (t *timelines) changes(services []flow.Service) []PortChange {
	out, ports := make([]PortChange, len(t.steps)), flow.PortsFrom(services)
	for n := range t.steps {
		end := int32(len(services))
		for at := n; at != 0; at = int(t.steps[at].from) {
			s := t.steps[at]
			if s.differs&opens != 0 {
				out[n].Opens = append(out[n].Opens, joined(ports[s.service:end])...)
			}
			if s.differs&closes != 0 {
				out[n].Closes = append(out[n].Closes, joined(ports[s.service:end])...)
			}
			end = s.service
		}
		out[n].Opens, out[n].Closes = inOrder(out[n].Opens), inOrder(out[n].Closes)
	}
	return out
}

// joined joins ports of one protocol where each range ends where the next one begins.
func joined(all []flow.Ports) (out []flow.Ports) {
	for _, p := range all {
		if n := len(out); n > 0 && out[n-1].Protocol == p.Protocol && out[n-1].Last+1 == p.First {
			out[n-1].Last = p.Last
			continue
		}
		out = append(out, p)
	}
	return out
}

// inOrder sorts ports and joins them.
func inOrder(all []flow.Ports) []flow.Ports {
	slices.SortFunc(all, func(a, b flow.Ports) int { return a.Service().Compare(b.Service()) })
	return joined(all)
}
