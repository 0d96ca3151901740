package policy

import (
	"fmt"
	"strconv"

	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weave-npc/weave-npc/npc"
)

// Port is one item of a rule's ports: a protocol with a range of ports that includes both ends, or with a port's name.
// With neither, it matches all ports of the protocol.
type Port struct {
	// Protocol is anyProtocol if a name is that of a port of any protocol.
	Protocol    uint8
	First, Last uint16
	Name        string
}

// anyProtocol stands for every protocol that has ports.
const anyProtocol = 0

// HasProtocol reports whether the item is of a protocol, or of any.
func (p Port) HasProtocol(protocol uint8) bool {
	return p.Protocol == protocol || p.Protocol == anyProtocol
}

// Includes reports whether the item matches a protocol and a port by number. An item with a name does not: the number
// depends on the pod.
func (p Port) Includes(protocol uint8, port uint16) bool {
	return p.Name == "" && p.Protocol == protocol && (p.First == 0 || p.First <= port && port <= p.Last)
}

// isPortName reports whether a port can have a name.
func isPortName(name string) bool { return len(validation.IsValidPortName(name)) == 0 }

// String returns the item as tcp/80, tcp/1000-1010, tcp/http, http for that of any protocol, or tcp for all its ports.
func (p Port) String() string {
	if p.Protocol == anyProtocol {
		if !isPortName(p.Name) { // it may be any text, that is printed where lines count
			return strconv.Quote(p.Name)
		}
		return p.Name
	}
	name := npc.ProtocolName(p.Protocol)
	switch {
	case p.Name != "":
		return name + "/" + p.Name
	case p.First == 0:
		return name
	case p.First == p.Last:
		return fmt.Sprintf("%s/%d", name, p.First)
	}
	return fmt.Sprintf("%s/%d-%d", name, p.First, p.Last)
}

func compilePort(p networkingv1.NetworkPolicyPort) (Port, error) {
	c := Port{Protocol: npc.TCP}
	if p.Protocol != nil {
		if c.Protocol = npc.PortProtocol(*p.Protocol); c.Protocol == 0 || *p.Protocol == "" {
			return c, errors.Errorf("%q is none of TCP, UDP and SCTP", *p.Protocol)
		}
	}
	switch {
	case p.Port == nil && p.EndPort != nil:
		return c, errors.New("endPort without port")
	case p.Port == nil:
		return c, nil
	case p.Port.Type == intstr.String:
		if !isPortName(p.Port.StrVal) || p.EndPort != nil {
			return c, errors.Errorf("%q is no port name, or has an endPort", p.Port.StrVal)
		}
		c.Name = p.Port.StrVal
		return c, nil
	}
	first, last := p.Port.IntVal, p.Port.IntVal
	if p.EndPort != nil {
		last = *p.EndPort
	}
	return compileRange(c.Protocol, first, last)
}

// compileRange returns the ports of a protocol from first to last.
func compileRange(protocol uint8, first, last int32) (Port, error) {
	if first < 1 || last > 65535 || last < first {
		return Port{}, errors.Errorf("%d to %d is no range within 1 to 65535", first, last)
	}
	return Port{Protocol: protocol, First: uint16(first), Last: uint16(last)}, nil
}
