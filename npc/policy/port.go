package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weave-npc/weave-npc/npc/traffic"
)

// Port is one protocol with ranges of ports or one named port; with neither, all its ports.
type Port struct {
	Protocol uint8
	ranges   []portRange
	Name     string
}

// portRange has both ends in it.
type portRange struct{ first, last uint16 }

// compilePorts gathers a rule's ports by protocol.
func compilePorts(ports []networkingv1.NetworkPolicyPort) ([]Port, error) {
	whole := map[uint8]bool{}
	ranges := map[uint8][]portRange{}
	named := map[portSpecName]bool{}
	for i, p := range ports {
		protocol := uint8(unix.IPPROTO_TCP)
		if p.Protocol != nil {
			if protocol = traffic.PortProtocol(*p.Protocol); protocol == 0 || *p.Protocol == "" {
				return nil, errors.Errorf("ports[%d]: %q is none of TCP, UDP and SCTP", i, *p.Protocol)
			}
		}
		switch {
		case p.Port == nil && p.EndPort != nil:
			return nil, errors.Errorf("ports[%d]: endPort without port", i)
		case p.Port == nil:
			whole[protocol] = true
		case p.Port.Type == intstr.String:
			if errs := validation.IsValidPortName(p.Port.StrVal); len(errs) > 0 || p.EndPort != nil {
				return nil, errors.Errorf("ports[%d]: %q is no port name, or has an endPort", i, p.Port.StrVal)
			}
			named[portSpecName{protocol, p.Port.StrVal}] = true
		default:
			r, err := compileRange(p.Port.IntVal, p.EndPort)
			if err != nil {
				return nil, errors.Wrapf(err, "ports[%d]", i)
			}
			ranges[protocol] = append(ranges[protocol], r)
		}
	}
	return gatherPorts(whole, ranges, named), nil
}

type portSpecName struct {
	protocol uint8
	name     string
}

func compileRange(first int32, end *int32) (portRange, error) {
	last := first
	if end != nil {
		last = *end
	}
	if first < 1 || last > 65535 || last < first {
		return portRange{}, errors.Errorf("%d to %d is no range within 1 to 65535", first, last)
	}
	return portRange{uint16(first), uint16(last)}, nil
}

// gatherPorts makes as few specs of ports as there can be, in a fixed order.
func gatherPorts(whole map[uint8]bool, ranges map[uint8][]portRange, named map[portSpecName]bool) []Port {
	var out []Port
	for _, protocol := range traffic.PortProtocols {
		if whole[protocol] {
			out = append(out, Port{Protocol: protocol})
			continue
		}
		for _, chunk := range chunkRanges(mergeRanges(ranges[protocol])) {
			out = append(out, Port{Protocol: protocol, ranges: chunk})
		}
		var names []string
		for n := range named {
			if n.protocol == protocol {
				names = append(names, n.name)
			}
		}
		slices.Sort(names)
		for _, n := range names {
			out = append(out, Port{Protocol: protocol, Name: n})
		}
	}
	return out
}

// mergeRanges sorts ranges and joins those that touch.
func mergeRanges(in []portRange) []portRange {
	slices.SortFunc(in, func(a, b portRange) int { return int(a.first) - int(b.first) })
	var out []portRange
	for _, r := range in {
		if n := len(out); n > 0 && int(r.first) <= int(out[n-1].last)+1 {
			out[n-1].last = max(out[n-1].last, r.last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// multiportSlots is how many ports one multiport match takes; a range takes two.
const multiportSlots = 15

// chunkRanges divides ranges among rules.
func chunkRanges(in []portRange) [][]portRange {
	var out [][]portRange
	used := multiportSlots
	for _, r := range in {
		slots := 1
		if r.last > r.first {
			slots = 2
		}
		if used+slots > multiportSlots {
			out, used = append(out, nil), 0
		}
		out[len(out)-1] = append(out[len(out)-1], r)
		used += slots
	}
	return out
}

// Match returns the iptables match for a protocol and, if they are numbers, its ports.
func (p Port) Match() string {
	name := traffic.ProtocolName(p.Protocol)
	text := func(r portRange) string {
		if r.first == r.last {
			return strconv.Itoa(int(r.first))
		}
		return fmt.Sprintf("%d:%d", r.first, r.last)
	}
	switch len(p.ranges) {
	case 0:
		return "-p " + name
	case 1:
		return fmt.Sprintf("-p %s -m %s --dport %s", name, name, text(p.ranges[0]))
	}
	ports := make([]string, 0, len(p.ranges))
	for _, r := range p.ranges {
		ports = append(ports, text(r))
	}
	return fmt.Sprintf("-p %s -m multiport --dports %s", name, strings.Join(ports, ","))
}
