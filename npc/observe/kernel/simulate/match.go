package simulate

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
)

// matcher returns the condition of an option; nil if it has none.
func matcher(option string, args []string) func(*Table, Packet) bool {
	switch option {
	case "--sport":
		return func(_ *Table, p Packet) bool { return inRanges(args[0], p.SrcPort) }
	case "--dport", "--dports":
		return func(_ *Table, p Packet) bool { return inRanges(args[0], p.DstPort) }
	case "--ctstate":
		return func(_ *Table, p Packet) bool {
			states := strings.Split(args[0], ",")
			state := p.State
			if state == "" {
				state = "NEW"
			}
			return slices.Contains(states, state) || p.DNAT && slices.Contains(states, "DNAT")
		}
	case "--ctdir":
		return func(*Table, Packet) bool { return args[0] == "ORIGINAL" } // of a packet that opens a connection
	case "--hex-string", "--hashlimit-above":
		return func(*Table, Packet) bool { return false } // it has no data, and is the only packet
	case "-s":
		return func(_ *Table, p Packet) bool { return netip.MustParsePrefix(args[0]).Contains(p.Src) }
	case "-d":
		return func(_ *Table, p Packet) bool { return netip.MustParsePrefix(args[0]).Contains(p.Dst) }
	case "-i":
		return func(_ *Table, p Packet) bool { return isInterface(args[0], p.In) }
	case "-o":
		return func(_ *Table, p Packet) bool { return isInterface(args[0], p.Out) }
	case "--icmpv6-type":
		return func(_ *Table, p Packet) bool { return strconv.Itoa(int(p.ICMPType)) == args[0] }
	case "--hl-eq":
		return func(_ *Table, p Packet) bool { return strconv.Itoa(int(p.HopLimit)) == args[0] }
	case "--bytecode":
		return func(_ *Table, p Packet) bool { return isProgram(args[0], p) }
	case "--helper":
		return func(_ *Table, p Packet) bool { return p.Helper == args[0] }
	case "--tcp-flags":
		return func(*Table, Packet) bool { return args[1] == "SYN" } // of a packet that opens a connection
	case "--mark":
		return func(_ *Table, p Packet) bool { return isMark(args[0], p.Mark) }
	case "--physdev-is-bridged":
		// A routed packet has only the port that it came by.
		return func(_ *Table, p Packet) bool { return p.PhysOut != "" }
	case "--physdev-in":
		return func(_ *Table, p Packet) bool { return isInterface(args[0], p.PhysIn) }
	case "--physdev-out":
		return func(_ *Table, p Packet) bool { return isInterface(args[0], p.PhysOut) }
	case "--dst-type":
		return func(_ *Table, p Packet) bool {
			return args[0] == "BROADCAST" && p.Broadcast || args[0] == "LOCAL" && p.ToNode
		}
	case "--pkt-type":
		return func(_ *Table, p Packet) bool { return args[0] == frameType(p) }
	}
	return nil
}

// frameType returns the name of the type of a packet's frame.
func frameType(p Packet) string {
	switch {
	case p.ToAll:
		return "broadcast"
	case p.ToGroup:
		return "multicast"
	}
	return "unicast"
}

// isProgram reports whether a packet matches a BPF program. One that is not known matches none.
func isProgram(program string, p Packet) bool {
	switch program {
	case iptables.HairpinIPv4, iptables.HairpinIPv6:
		return p.Src == p.Dst
	case iptables.OwnErrorIPv4, iptables.OwnErrorIPv6:
		return p.Quoted == p.Src
	}
	return false
}

// isInterface reports whether an interface has a name, or begins with a name that ends in a plus.
func isInterface(pattern, name string) bool {
	if beginning, many := strings.CutSuffix(pattern, "+"); many {
		return strings.HasPrefix(name, beginning)
	}
	return name == pattern
}

// isMark compares a mark with VALUE/MASK.
func isMark(text string, mark uint32) bool {
	value, mask, _ := strings.Cut(text, "/")
	v, _ := strconv.ParseUint(value, 0, 32)
	m, _ := strconv.ParseUint(mask, 0, 32)
	return mark&uint32(m) == uint32(v)
}

func inRanges(text string, port uint16) bool {
	for _, r := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(r, ":")
		if !isRange {
			last = first
		}
		a, _ := strconv.Atoi(first)
		b, _ := strconv.Atoi(last)
		if int(port) >= a && int(port) <= b {
			return true
		}
	}
	return false
}

// test looks a packet up in a set as the kernel does.
func (t *Table) test(m setMatch, p Packet) bool {
	s := t.Sets[m.name]
	if s == nil {
		return false
	}
	a := p.Src
	if strings.HasPrefix(m.dirs, "dst") {
		a = p.Dst
	}
	switch s.Type {
	case ipset.ListSet:
		for e := range s.Members {
			if t.test(setMatch{e.Set, m.dirs}, p) {
				return true
			}
		}
		return false
	case ipset.HashIP:
		_, ok := s.Members[ipset.Addr(a)]
		return ok
	case ipset.HashIPPort:
		_, ok := s.Members[ipset.AddrPort(a, p.Protocol, p.DstPort)]
		return ok
	}
	for bits := a.BitLen(); bits > 0; bits-- {
		if attr, ok := s.Members[ipset.Net(netip.PrefixFrom(a, bits).Masked())]; ok {
			return !attr.NoMatch
		}
	}
	return false
}
