package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
)

// MergedPorts is one protocol with ranges of ports or one named port; with neither, all its ports.
type MergedPorts struct {
	Protocol uint8
	ranges   []portRange
	Name     string
}

// portRange includes both ends.
type portRange struct{ first, last uint16 }

// mergePorts collects a rule's ports by protocol, in a fixed order.
func mergePorts(ports []Port) []MergedPorts {
	var out []MergedPorts
	for _, protocol := range npc.PortProtocols {
		whole, ranges, names := false, []portRange(nil), map[string]struct{}{}
		for _, p := range ports {
			switch {
			case p.Protocol != protocol && p.Protocol != anyProtocol:
			case p.Name != "":
				names[p.Name] = struct{}{}
			case p.First == 0:
				whole = true
			default:
				ranges = append(ranges, portRange{p.First, p.Last})
			}
		}
		if whole {
			out = append(out, MergedPorts{Protocol: protocol})
			continue
		}
		for _, chunk := range chunkRanges(mergeRanges(ranges)) {
			out = append(out, MergedPorts{Protocol: protocol, ranges: chunk})
		}
		for _, n := range slices.Sorted(maps.Keys(names)) {
			out = append(out, MergedPorts{Protocol: protocol, Name: n})
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

// Includes reports whether ports that are not named include a port of a protocol.
func (p MergedPorts) Includes(protocol uint8, port uint16) bool {
	return p.Protocol == protocol && (len(p.ranges) == 0 ||
		slices.ContainsFunc(p.ranges, func(r portRange) bool { return r.first <= port && port <= r.last }))
}

// Match returns the iptables match for the protocol and, if they are numbers, its ports.
func (p MergedPorts) Match() string {
	name := npc.ProtocolName(p.Protocol)
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
