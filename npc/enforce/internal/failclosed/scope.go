package failclosed

import (
	"net/netip"
	"slices"
	"strings"
)

// scope describes where the pods of this node are.
type scope struct {
	// Interface is the interface of their packets; empty if it is not known.
	Interface string
	// ByCNI is set if only the CNI decides which packets reach the chains and no range is configured. The CNI sends the
	// packets of its pods.
	ByCNI bool
	// Ranges are the ranges of their addresses. They count only if no interface is known.
	Ranges []netip.Prefix
}

// byInterface reports whether pods are identified by the interface of their packets. Any address may be a pod's then.
func (s scope) byInterface() bool { return s.Interface != "" || s.ByCNI }

// prefixes returns the prefixes that the fail-closed filter drops. There are none if nothing is known about the pods'
// addresses.
func (s scope) prefixes() []netip.Prefix {
	if s.byInterface() {
		return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0),
			netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	}
	return s.Ranges
}

// String describes the addresses that the fail-closed filter drops. It is empty if there are none.
func (s scope) String() string {
	switch {
	case s.Interface != "":
		return "unknown addresses behind " + s.Interface
	case s.ByCNI:
		return "unknown addresses behind the CNI's interface"
	case len(s.Ranges) == 0:
		return ""
	}
	texts := make([]string, len(s.Ranges))
	for i, r := range s.Ranges {
		texts[i] = r.String()
	}
	return "unknown addresses in " + strings.Join(texts, ", ")
}

// contains reports whether an address is in the ranges.
func (s scope) contains(a netip.Addr) bool {
	return slices.ContainsFunc(s.Ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}

// misses reports whether the fail-closed filter does not cover an address although the ranges of its family are known.
func (s scope) misses(a netip.Addr) bool {
	ofFamily := func(r netip.Prefix) bool { return r.Addr().Is4() == a.Is4() }
	return !s.byInterface() && slices.ContainsFunc(s.Ranges, ofFamily) && !s.contains(a)
}

// excepts reports whether the fail-closed filter could drop packets to (dst) or from the address of a known pod of
// another node, so that the address must be excepted. Behind the pods' interface there are such pods only if it has an
// uplink. Packets from them, and bridged packets to them, are identified by the uplink; routed packets to them only by
// their addresses.
func (s scope) excepts(a netip.Addr, dst, uplink bool) bool {
	if s.Interface != "" {
		return dst && uplink
	}
	return s.ByCNI || s.contains(a)
}
