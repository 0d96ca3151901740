package ports

// Reason is a reason to drop frames.
type Reason string

// The reasons. The last four are forged sources, which are dropped or only counted, as the Mode demands.
const (
	byVLAN      Reason = "vlan"
	byType      Reason = "ethertype"
	byRouter    Reason = "router"
	byHidden    Reason = "hidden"
	byIP        Reason = "ip"
	byARP       Reason = "arp"
	byNeighbour Reason = "nd"
	byMAC       Reason = "mac"
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{byVLAN, byType, byRouter, byHidden, byIP, byARP, byNeighbour, byMAC}
}

// comment returns the comment of rules that drop frames for the reason.
func (r Reason) comment() string {
	const prefix = "weave-npc: "
	switch r {
	case byVLAN:
		return prefix + "frames with a VLAN tag do not pass ip(6)tables"
	case byType:
		return prefix + "this EtherType does not pass ip(6)tables"
	case byRouter:
		return prefix + "only routers send this"
	case byHidden:
		return prefix + "an ICMPv6 type that cannot be read"
	case byARP:
		return prefix + "the sender of ARP is not this port's"
	case byNeighbour:
		return prefix + "neighbour discovery for an address that is not this port's"
	case byMAC:
		return prefix + "the MAC address is not this port's"
	}
	return prefix + "the source is not this port's"
}
