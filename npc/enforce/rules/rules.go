// Package rules renders rules as text, and specifies the sets that they refer to.
//
//	Base                     the rules of the chains that every node has (base, forward), with matches from rules,
//	                         broadcast, neighbours and terminate
//	Render, RenderCluster    the rules of one policy, and their Sets (render)
//	SetSpec                  what a set holds: pods of a selector, nodes, blocks, or a union of these (setspec)
//
// It knows nothing about the kernel's state and changes nothing.
//
//	b := &rules.Base{Hooked: true, AllowAction: "ACCEPT", NFLogGroup: 86}
//	b.ToPods(npc.IPv4)                       // the rules of chain WEAVE-NPC
//	b.Isolated(npc.IPv4, npc.Ingress)        // the end of chain WEAVE-NPC-INGRESS
//	rules.Render(policy, "shop", "shop/web", fits) // -m set --match-set weave-... src, and the set weave-...
package rules

import (
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// DHCP is allowed only where a client without an address needs it: it asks all servers by broadcast or multicast, and
// one on its bridge answers, to an address that is not known yet. Packets between two known addresses are evaluated
// like any others: a client whose renewal is dropped asks all servers in the end.

// onBridge matches bridged packets. An answer that is routed belongs to a connection.
const onBridge = " -m physdev --physdev-is-bridged"

// dhcpRequest matches packets of a client to all servers.
func dhcpRequest(f iptables.Family, target string) iptables.Rule {
	match := "-d 255.255.255.255/32 -p udp -m udp --sport 68 --dport 67"
	if f == iptables.IPv6 {
		match = "-d ff02::1:2/128 -p udp -m udp --sport 546 --dport 547"
	}
	return iptables.Rule{Match: match, Target: target, Comment: "DHCP: a client asks all servers"}
}

// dhcpReply matches IPv4 packets of a server to a client. IPv6 servers send to link-local addresses, which no known pod
// has.
func dhcpReply(target string) iptables.Rule {
	return iptables.Rule{Match: "-p udp -m udp --sport 67 --dport 68" + onBridge, Target: target,
		Comment: "DHCP: a server on the bridge answers"}
}

// unknownDHCP matches DHCP of addresses that the fail-closed filter may drop: new addresses of clients, and servers and
// relays that are not pods. DHCPv6 answers go from one link-local address to another.
func unknownDHCP(f iptables.Family, target string) iptables.Rule {
	match := "-p udp -m udp --sport 67:68 --dport 67:68" + onBridge
	if f == iptables.IPv6 {
		match = "-s fe80::/10 -d fe80::/10 -p udp -m udp --sport 547 --dport 546" + onBridge
	}
	return iptables.Rule{Match: match, Target: target, Comment: "DHCP of unknown addresses"}
}

// toUplinks match packets that leave through ports of a bridge. Only bridged packets show their port.
func toUplinks(ports []string, target string) []iptables.Rule {
	var out []iptables.Rule
	for _, p := range ports {
		out = append(out, iptables.Rule{Match: "-m physdev --physdev-is-bridged --physdev-out " + p, Target: target,
			Comment: "leaves by an uplink of the bridge"})
	}
	return out
}

// fromUplinks match packets that arrive through ports of a bridge, bridged or routed.
func fromUplinks(ports []string, target string) []iptables.Rule {
	var out []iptables.Rule
	for _, p := range ports {
		out = append(out, iptables.Rule{Match: "-m physdev --physdev-in " + p, Target: target,
			Comment: "comes by an uplink of the bridge"})
	}
	return out
}

// routedTo matches packets that are routed to members of a set.
func routedTo(set, target string) iptables.Rule {
	return iptables.Rule{Match: "-m physdev ! --physdev-is-bridged " + naming.Match(set, "dst"), Target: target,
		Comment: "routed to what is behind an uplink of the bridge"}
}

// icmp matches the ICMP of a family.
func icmp(f npc.Family) string {
	if f == npc.IPv6 {
		return "-p icmpv6"
	}
	return "-p icmp"
}

// ownError matches ICMP errors about packets that were sent to the error's source. A pod that sends errors about packets
// to others could else end their connections, or change the path MTU to them.
func ownError(f iptables.Family, target string) iptables.Rule {
	program := iptables.OwnErrorIPv4
	if f == iptables.IPv6 {
		program = iptables.OwnErrorIPv6
	}
	return iptables.Rule{Match: related + ` -m bpf --bytecode "` + program + `"`, Target: target,
		Comment: "an ICMP error about a packet to its sender"}
}

// hairpin matches a pod that reaches itself through a Service.
func hairpin(f iptables.Family, target string) iptables.Rule {
	program := iptables.HairpinIPv4
	if f == iptables.IPv6 {
		program = iptables.HairpinIPv6
	}
	return iptables.Rule{Match: `-m conntrack --ctstate DNAT -m bpf --bytecode "` + program + `"`, Target: target,
		Comment: "a pod reaches itself through a Service"}
}
