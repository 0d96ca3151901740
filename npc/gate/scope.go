// Package gate tells which addresses may be those of pods that nobody knows yet, and reports when their packets are dropped.
package gate

import (
	"net/netip"
	"slices"
	"strings"
)

// Scope is what is known of where the pods of this node are.
type Scope struct {
	// Interface is what their packets pass; empty if that is not known.
	Interface string
	// ByCNI is set where the CNI alone decides which packets are judged, and nobody gave a range: it sends those of its pods.
	ByCNI bool
	// Ranges are those of their addresses, which count only if nothing is known of an interface.
	Ranges []netip.Prefix
}

// ByInterface reports whether pods are told by the interface that their packets pass, so that any address there may be one's.
func (s Scope) ByInterface() bool { return s.Interface != "" || s.ByCNI }

// Prefixes are those that the gate closes; none if nothing is known that it could close.
func (s Scope) Prefixes() []netip.Prefix {
	if s.ByInterface() {
		return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	}
	return s.Ranges
}

// String describes what the gate closes; it is empty if that is nothing.
func (s Scope) String() string {
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

// Contains reports whether an address is in the ranges.
func (s Scope) Contains(a netip.Addr) bool {
	return slices.ContainsFunc(s.Ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}

// Misses reports whether a pod with an address would not be closed although the ranges of its family are known.
func (s Scope) Misses(a netip.Addr) bool {
	ofFamily := func(r netip.Prefix) bool { return r.Addr().Is4() == a.Is4() }
	return !s.ByInterface() && slices.ContainsFunc(s.Ranges, ofFamily) && !s.Contains(a)
}

// Excepts reports whether the address of a known pod of another node may be one that the gate closes to what goes there (dst) or comes from
// there. Behind the pods' interface there are such pods only if it has an uplink: what comes from them, and what is bridged to them, is told by
// the uplink, and what is routed to them by their addresses alone.
func (s Scope) Excepts(a netip.Addr, dst, uplink bool) bool {
	if s.Interface != "" {
		return dst && uplink
	}
	return s.ByCNI || s.Contains(a)
}
