// Package ipfamily translates IP families to those of the kernel's tables and sets.
//
// It is apart from package traffic, so that what only answers about policies needs neither iptables nor ipset.
package ipfamily

import (
	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// IPSet returns the family of package ipset.
func IPSet(f traffic.Family) ipset.Family {
	if f == traffic.IPv6 {
		return ipset.IPv6
	}
	return ipset.IPv4
}

// IPTables returns the family of package iptables.
func IPTables(f traffic.Family) iptables.Family {
	if f == traffic.IPv6 {
		return iptables.IPv6
	}
	return iptables.IPv4
}
