package diff

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// Ports are ranges of ports, in order. ICMP stands for all protocols without ports.
type Ports []flow.Ports

// maxRanges is how many ranges of ports a text names.
const maxRanges = 12

// String returns the ports in words: tcp/80, tcp/1-1024, tcp for all its ports, everything, or everything except a few.
func (p Ports) String() string {
	rest := p.complement()
	switch {
	case len(rest) == 0:
		return "everything"
	case len(rest) < len(p):
		return "everything except " + rest.list()
	}
	return p.list()
}

func (p Ports) list() string {
	texts := spelling.Texts(p)
	if more := len(texts) - maxRanges; more > 1 {
		texts = append(texts[:maxRanges], fmt.Sprintf("and %d more ranges", more))
	}
	return strings.Join(texts, ", ")
}

// complement returns all other ports.
func (p Ports) complement() (rest Ports) {
	whole := Ports{{Protocol: npc.ICMP}}
	for _, protocol := range npc.PortProtocols {
		whole = append(whole, flow.Ports{Protocol: protocol, First: 1, Last: flow.LastPort})
	}
	slices.SortFunc(whole, func(a, b flow.Ports) int { return cmp.Compare(a.Protocol, b.Protocol) })
	for _, w := range whole {
		next := int(w.First)
		for _, r := range p {
			if r.Protocol != w.Protocol {
				continue
			}
			if next < int(r.First) {
				rest = append(rest, flow.Ports{Protocol: w.Protocol, First: uint16(next), Last: r.First - 1})
			}
			next = int(r.Last) + 1
		}
		if next <= int(w.Last) {
			rest = append(rest, flow.Ports{Protocol: w.Protocol, First: uint16(next), Last: w.Last})
		}
	}
	return rest
}

// example returns one of the ports: one that the destination declares, else that of a well-known service.
func (p Ports) example(declared []npc.NamedPort) flow.Service {
	for _, d := range declared {
		if s := (flow.Service{Protocol: d.Protocol, Port: d.Port}); p.Has(s) {
			return s
		}
	}
	for _, want := range []uint16{80, 443, 0} {
		for _, r := range p {
			if r.Protocol == npc.TCP && (want == 0 || r.First <= want && want <= r.Last) {
				return flow.Service{Protocol: r.Protocol, Port: max(want, r.First)}
			}
		}
	}
	return flow.Service{Protocol: p[0].Protocol, Port: p[0].First}
}

// key returns a text that identifies the ports.
func (p Ports) key() string {
	var b strings.Builder
	for _, r := range p {
		fmt.Fprintf(&b, "%d %d %d,", r.Protocol, r.First, r.Last)
	}
	return b.String()
}

func comparePorts(a, b Ports) int {
	return slices.CompareFunc(a, b, func(a, b flow.Ports) int {
		return cmp.Or(a.Service().Compare(b.Service()), cmp.Compare(a.Last, b.Last))
	})
}

// Has reports whether a port is among the ports.
func (p Ports) Has(s flow.Service) bool {
	return slices.ContainsFunc(p, func(r flow.Ports) bool {
		return r.Protocol == s.Protocol && r.First <= s.Port && s.Port <= r.Last
	})
}
