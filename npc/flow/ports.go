package flow

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
)

// LastPort is the greatest port.
const LastPort = 65535

// Ports are ports of a protocol from First to Last, or a protocol that has none, which stands for all such. The zero
// Ports is everything.
type Ports struct {
	Protocol    uint8
	First, Last uint16
}

// String returns the ports as tcp/80, tcp/80-90, tcp for all of its ports, icmp, or everything.
func (p Ports) String() string {
	name := npc.ProtocolName(p.Protocol)
	switch {
	case p == Ports{}:
		return "everything"
	case p.First == p.Last:
		return p.Service().String()
	case p.First == 1 && p.Last == LastPort:
		return name
	}
	return fmt.Sprintf("%s/%d-%d", name, p.First, p.Last)
}

// MarshalText returns String.
func (p Ports) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Service returns one of the ports, which stands for all.
func (p Ports) Service() Service { return Service{Protocol: p.Protocol, Port: p.First} }

// PortsFrom returns the ports from each of some services to before the next one. The services must be in order.
func PortsFrom(services []Service) []Ports {
	out := make([]Ports, len(services))
	for i, s := range services {
		last := uint16(LastPort)
		switch {
		case s.Port == 0:
			last = 0
		case i+1 < len(services) && services[i+1].Protocol == s.Protocol:
			last = services[i+1].Port - 1
		}
		out[i] = Ports{s.Protocol, s.Port, last}
	}
	return out
}

// Split is where ranges of ports begin that are treated alike.
type Split map[Service]bool

// NewSplit returns a split that all ports of each protocol are in.
func NewSplit() Split {
	s := Split{}
	for _, protocol := range npc.PortProtocols {
		s[Service{Protocol: protocol, Port: 1}] = true
	}
	return s
}

// Add distinguishes the ports of a range from others. A range that begins with 0 is a protocol's whole range, or that
// of no protocol with ports.
func (s Split) Add(protocol uint8, first, last uint16) {
	if first == 0 {
		return
	}
	s[Service{Protocol: protocol, Port: first}] = true
	if last < LastPort {
		s[Service{Protocol: protocol, Port: last + 1}] = true
	}
}

// Services returns where the ranges begin, in order.
func (s Split) Services() []Service { return slices.SortedFunc(maps.Keys(s), Service.Compare) }

// Compare orders services by protocol and port.
func (s Service) Compare(other Service) int {
	return cmp.Or(cmp.Compare(s.Protocol, other.Protocol), cmp.Compare(s.Port, other.Port))
}
