package naming

import (
	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
)

// IPSet returns the family of package ipset.
func IPSet(f npc.Family) ipset.Family {
	if f == npc.IPv6 {
		return ipset.IPv6
	}
	return ipset.IPv4
}

// IPTables returns the family of package iptables.
func IPTables(f npc.Family) iptables.Family {
	if f == npc.IPv6 {
		return iptables.IPv6
	}
	return iptables.IPv4
}
