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

// podPortNames is how CNIs that attach pods to a bridge begin the names of their ports.
const podPortNames = "veth"

// neighbourDiscovery is for the ICMPv6 types of RFC 4861, with the hop limit that shows that no router passed them on.
func neighbourDiscovery(target string) []iptables.Rule {
	var rules []iptables.Rule
	for i, name := range [...]string{"router solicitation", "router advertisement", "neighbour solicitation",
		"neighbour advertisement", "redirect"} {
		rules = append(rules, iptables.Rule{Match: discovery(routerSolicitation + i), Target: target, Comment: name})
	}
	return rules
}

// fromRouters matches what only routers send where a pod sends it, by the name of its port. Package node keeps that from passing for
// certain; these rules stand in where the kernel has no nftables for bridges, and until a new port is guarded.
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

// notByUplinks matches, at the end of other matches, what comes by none of the given ports of a bridge.
func notByUplinks(ports []string) string {
	var match string
	for _, port := range ports {
		match += " -m physdev ! --physdev-in " + port
	}
	return match
}
