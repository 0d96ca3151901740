package ipblock

import (
	"fmt"
	"net/netip"
)

// Range is addresses of one family from First to Last.
type Range struct{ First, Last netip.Addr }

// Prefix returns the range as a prefix, if it is one.
func (r Range) Prefix() (netip.Prefix, bool) {
	for bits := range r.First.BitLen() + 1 {
		if p := netip.PrefixFrom(r.First, bits); p.Masked() == p && Last(p) == r.Last {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// String returns the range as a prefix if it is one, and otherwise as its ends with a dash, or as the only address.
func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	if p, is := r.Prefix(); is {
		return p.String()
	}
	return fmt.Sprintf("%s-%s", r.First, r.Last)
}

// MarshalText returns String.
func (r Range) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Whole reports whether the range is all addresses of its family.
func (r Range) Whole() bool {
	return r.First.IsUnspecified() && r.Last == Last(netip.PrefixFrom(r.First, 0))
}

// Unicast returns the first address of the range that is wanted and no multicast address, if there is one.
func (r Range) Unicast(wanted func(netip.Addr) bool) (netip.Addr, bool) {
	for a := r.First; a.IsValid() && !r.Last.Less(a); a = a.Next() {
		if a.IsMulticast() {
			if a.Is6() {
				break // there is nothing after them
			}
			a = netip.AddrFrom4([4]byte{239, 255, 255, 255})
			continue
		}
		if wanted(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// Last returns the last address of a prefix.
func Last(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}
