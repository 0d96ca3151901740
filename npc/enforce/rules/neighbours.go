package rules

import (
	"fmt"

	"github.com/weave-npc/weave-npc/iptables"
)

// The ICMPv6 types of RFC 4861.
const (
	routerSolicitation = 133
	routerAdvert       = 134
	redirect           = 137
)

// podPortNames is the beginning of the names that CNIs give to the bridge ports of pods.
const podPortNames = "veth"

// neighbourDiscovery matches the ICMPv6 types of RFC 4861, with the hop limit of packets that were not routed.
func neighbourDiscovery(target string) []iptables.Rule {
	var rules []iptables.Rule
	for i, name := range [...]string{"router solicitation", "router advertisement", "neighbour solicitation",
		"neighbour advertisement", "redirect"} {
		rules = append(rules, iptables.Rule{Match: discovery(routerSolicitation + i), Target: target, Comment: name})
	}
	return rules
}

// fromRouters matches messages that only routers send, from ports with the name of a pod's. Package node drops all of
// them; these rules cover kernels without nftables for bridges, and new ports that are not guarded yet.
func fromRouters(uplinks []string, target string) []iptables.Rule {
	match := " -m physdev --physdev-is-bridged --physdev-in " + podPortNames + "+" + notByUplinks(uplinks)
	return []iptables.Rule{
		{Match: discovery(routerAdvert) + match, Target: target, Comment: "router advertisement of a pod"},
		{Match: discovery(redirect) + match, Target: target, Comment: "redirect of a pod"},
	}
}

func discovery(kind int) string {
	return fmt.Sprintf("-p icmpv6 -m icmp6 --icmpv6-type %d -m hl --hl-eq 255", kind)
}

// notByUplinks returns matches to append to others, for packets that arrive through none of the given bridge ports.
func notByUplinks(ports []string) string {
	var match string
	for _, port := range ports {
		match += " -m physdev ! --physdev-in " + port
	}
	return match
}
