package expectation

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// parsePorts reads ports with commas or "and" between them.
func parsePorts(text string) (ports []Port, err error) {
	text = strings.ReplaceAll(" "+text+" ", " and ", ",")
	for part := range strings.SplitSeq(text, ",") {
		p, err := parsePort(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	return ports, nil
}

// parsePort reads "tcp/80", "80", "8000-8100", "udp/8000-8100", "tcp" for all ports of a protocol, "postgres",
// "tcp/http", or "icmp".
func parsePort(text string) (Port, error) {
	if protocol, ok := npc.ProtocolNumber(text); ok {
		return Port{Protocol: protocol, First: 1, Last: flow.LastPort}, nil
	}
	if p, ok := parseRange(text); ok {
		return p, nil
	}
	s, err := flow.ParseService(text)
	if err == nil {
		return Port{Protocol: s.Protocol, First: s.Port, Last: s.Port}, nil
	}
	if protocol, name, ok := flow.ParseNamed(text); ok {
		return Port{Protocol: protocol, Name: name}, nil
	}
	if text == "" {
		return Port{}, errors.New("after on, a port is missing, such as tcp/80, udp/53, http or icmp")
	}
	return Port{}, errors.Errorf("%q is no port such as tcp/80, udp/53, 8000-8100, http, nor icmp", text)
}

// parseRange reads a range of ports.
func parseRange(text string) (Port, bool) {
	word, numbers, slash := strings.Cut(text, "/")
	if !slash {
		word, numbers = "tcp", text
	}
	protocol, ok := npc.ProtocolNumber(word)
	first, last, dash := strings.Cut(numbers, "-")
	a, err := strconv.ParseUint(first, 10, 16)
	b, errLast := strconv.ParseUint(last, 10, 16)
	if !ok || !dash || err != nil || errLast != nil || a == 0 || a > b {
		return Port{}, false
	}
	return Port{Protocol: protocol, First: uint16(a), Last: uint16(b)}, true
}
