package npc

import "net/netip"

// Family is an IP family; each has its own sets and its own chains.
type Family uint8

// The families, in the order of their indices.
const (
	IPv4 Family = iota
	IPv6
)

// Families are both of them, for loops.
var Families = [...]Family{IPv4, IPv6}

// String returns "IPv4" or "IPv6".
func (f Family) String() string {
	if f == IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// FamilyOf returns the family of an unmapped address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Direction is the direction of a policy type, seen from the isolated pod.
type Direction uint8

// The directions, in the order of their indices.
const (
	Ingress Direction = iota
	Egress
)

// Directions are both of them, for loops.
var Directions = [...]Direction{Ingress, Egress}

// String returns the direction in lower case.
func (d Direction) String() string {
	if d == Egress {
		return "egress"
	}
	return "ingress"
}

// Opposite returns the other direction.
func (d Direction) Opposite() Direction { return Ingress + Egress - d }

// MarshalText returns the text of String.
func (d Direction) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Own returns the name of the isolated pod's address in a set match: src or dst.
func (d Direction) Own() string {
	if d == Egress {
		return "src"
	}
	return "dst"
}

// Peer returns the name of the peer's address in a set match: src or dst.
func (d Direction) Peer() string {
	if d == Egress {
		return "dst"
	}
	return "src"
}
