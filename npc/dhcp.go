package npc

import "github.com/weave-npc/weave-npc/iptables"

// DHCP passes as far as a client needs it that has no address, or loses the one that it has: it asks all servers by broadcast or
// multicast, and one on its bridge answers, at an address that nobody knows yet. What two known addresses send each other is judged like
// everything else: a client whose renewal is dropped asks all servers in the end.

// onBridge matches what a bridge passes on. An answer that comes by another way belongs to a connection.
const onBridge = " -m physdev --physdev-is-bridged"

// dhcpRequest matches what a client sends to all servers.
func dhcpRequest(f Family, target string) iptables.Rule {
	match := "-d 255.255.255.255/32 -p udp -m udp --sport 68 --dport 67"
	if f == IPv6 {
		match = "-d ff02::1:2/128 -p udp -m udp --sport 546 --dport 547"
	}
	return iptables.Rule{Match: match, Target: target, Comment: "DHCP: a client asks all servers"}
}

// dhcpRules are for isolated pods and what is no known pod.
func (m *Model) dhcpRules(f Family, d Direction) []iptables.Rule {
	allow := m.allowTarget(d)
	switch {
	case f == IPv6 && (m.AllowMcast || d == Egress): // passes as multicast, or has passed before it
		return nil
	case f == IPv6 || d == Egress:
		return []iptables.Rule{dhcpRequest(f, allow)}
	}
	return []iptables.Rule{dhcpRequest(f, allow),
		{Match: "-p udp -m udp --sport 67 --dport 68" + onBridge, Target: allow, Comment: "DHCP: a server on the bridge answers"}}
}

// unknownDHCP is for addresses that the gate may close: those of clients that have just got them, and of servers and relays that are no
// pods. DHCPv6 answers go from one link-local address to another.
func (m *Model) unknownDHCP(f Family, d Direction) iptables.Rule {
	match := "-p udp -m udp --sport 67:68 --dport 67:68" + onBridge
	if f == IPv6 {
		match = "-s fe80::/10 -d fe80::/10 -p udp -m udp --sport 547 --dport 546" + onBridge
	}
	return iptables.Rule{Match: match, Target: m.allowTarget(d), Comment: "DHCP of unknown addresses"}
}
