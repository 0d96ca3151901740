// Package rules renders the rules that every node has and that depend on no policy.
package rules

import "github.com/weave-npc/weave-npc/iptables"

// DHCP passes as far as a client needs it that has no address, or loses the one that it has: it asks all servers by broadcast or
// multicast, and one on its bridge answers, at an address that nobody knows yet. What two known addresses send each other is judged like
// everything else: a client whose renewal is dropped asks all servers in the end.

// onBridge matches what a bridge passes on. An answer that comes by another way belongs to a connection.
const onBridge = " -m physdev --physdev-is-bridged"

// dhcpRequest matches what a client sends to all servers.
func dhcpRequest(f iptables.Family, target string) iptables.Rule {
	match := "-d 255.255.255.255/32 -p udp -m udp --sport 68 --dport 67"
	if f == iptables.IPv6 {
		match = "-d ff02::1:2/128 -p udp -m udp --sport 546 --dport 547"
	}
	return iptables.Rule{Match: match, Target: target, Comment: "DHCP: a client asks all servers"}
}

// dhcpReply matches what a server sends to a client by IPv4. By IPv6 it sends to link-local addresses, which are none of known pods.
func dhcpReply(target string) iptables.Rule {
	return iptables.Rule{Match: "-p udp -m udp --sport 67 --dport 68" + onBridge, Target: target,
		Comment: "DHCP: a server on the bridge answers"}
}

// unknownDHCP is for addresses that the gate may close: those of clients that have just got them, and of servers and relays that are no
// pods. DHCPv6 answers go from one link-local address to another.
func unknownDHCP(f iptables.Family, target string) iptables.Rule {
	match := "-p udp -m udp --sport 67:68 --dport 67:68" + onBridge
	if f == iptables.IPv6 {
		match = "-s fe80::/10 -d fe80::/10 -p udp -m udp --sport 547 --dport 546" + onBridge
	}
	return iptables.Rule{Match: match, Target: target, Comment: "DHCP of unknown addresses"}
}

// toUplinks match what leaves by ports of a bridge. Only what the bridge passes on shows by which port.
func toUplinks(ports []string, target string) []iptables.Rule {
	var out []iptables.Rule
	for _, p := range ports {
		out = append(out, iptables.Rule{Match: "-m physdev --physdev-is-bridged --physdev-out " + p, Target: target,
			Comment: "leaves by an uplink of the bridge"})
	}
	return out
}

// fromUplinks match what comes by ports of a bridge, whether the bridge passes it on or the node routes it.
func fromUplinks(ports []string, target string) []iptables.Rule {
	var out []iptables.Rule
	for _, p := range ports {
		out = append(out, iptables.Rule{Match: "-m physdev --physdev-in " + p, Target: target, Comment: "comes by an uplink of the bridge"})
	}
	return out
}

// routedTo matches what is routed to members of a set.
func routedTo(set, target string) iptables.Rule {
	return iptables.Rule{Match: "-m physdev ! --physdev-is-bridged -m set --match-set " + set + " dst", Target: target,
		Comment: "routed to what is behind an uplink of the bridge"}
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
