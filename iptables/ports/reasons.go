package ports

// Reason is a reason to drop frames.
type Reason string

// The reasons. The last four are forged sources, which are dropped or only counted, as the Mode demands.
const (
	VLAN      Reason = "vlan"
	EtherType Reason = "ethertype"
	Router    Reason = "router"
	Hidden    Reason = "hidden"
	IP        Reason = "ip"
	ARP       Reason = "arp"
	Neighbour Reason = "nd"
	Hardware  Reason = "mac"
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{VLAN, EtherType, Router, Hidden, IP, ARP, Neighbour, Hardware}
}

// comment returns the comment of rules that drop frames for the reason.
func (r Reason) comment() string {
	const prefix = "weave-npc: "
	switch r {
	case VLAN:
		return prefix + "frames with a VLAN tag do not pass ip(6)tables"
	case EtherType:
		return prefix + "this EtherType does not pass ip(6)tables"
	case Router:
		return prefix + "only routers send this"
	case Hidden:
		return prefix + "an ICMPv6 type that cannot be read"
	case ARP:
		return prefix + "the sender of ARP is not this port's"
	case Neighbour:
		return prefix + "neighbour discovery for an address that is not this port's"
	case Hardware:
		return prefix + "the MAC address is not this port's"
	}
	return prefix + "the source is not this port's"
}
