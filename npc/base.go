package npc

import (
	"fmt"

	"github.com/weave-npc/weave-npc/iptables"
)

// The chains that every node has.
const (
	hookChain          = "FORWARD"
	forwardChain       = chainPrefix + "-FORWARD"
	mainChain          = chainPrefix
	defaultChain       = chainPrefix + "-DEFAULT"
	ingressChain       = chainPrefix + "-INGRESS"
	egressChain        = chainPrefix + "-EGRESS"
	egressDefaultChain = chainPrefix + "-EGRESS-DEFAULT"
	egressCustomChain  = chainPrefix + "-EGRESS-CUSTOM"
	broadcastChain     = chainPrefix + "-BROADCAST"
)

// isolatedChain returns the chain for packets that default-allow does not let pass.
func isolatedChain(d Direction) string {
	if d == Egress {
		return egressCustomChain
	}
	return ingressChain
}

// dropChain is the chain that reports and drops a packet.
func dropChain(d Direction) string {
	if d == Egress {
		return chainPrefix + "-DROP-EGRESS"
	}
	return chainPrefix + "-DROP-INGRESS"
}

// repliesChain is the chain for packets that do not open a connection and came past WEAVE-NPC-FORWARD all the same.
func repliesChain(d Direction) string {
	if d == Egress {
		return chainPrefix + "-EGRESS-REPLIES"
	}
	return chainPrefix + "-REPLIES"
}

const (
	established = "-m conntrack --ctstate ESTABLISHED,RELATED"
	notNew      = "-m conntrack ! --ctstate NEW,UNTRACKED"
	invalid     = "-m conntrack --ctstate INVALID"
	firstOnes   = "-m conntrack --ctstate NEW,UNTRACKED"
)

// comment is a text as rules and entries carry it.
func comment(text string) string { return iptables.Comment(text) }

// allowTarget is what an allowed packet gets. On egress it is only let through to what follows, for its
// destination may be isolated too.
func (m *Model) allowTarget(d Direction) string {
	if d == Egress || m.Hook == HookForward && m.AllowAction == "RETURN" {
		return "-j RETURN"
	}
	return "-j ACCEPT"
}

// strangerTarget is what a packet gets on ingress that is not ours to judge. A CNI that jumps to us drops
// what we return.
func (m *Model) strangerTarget() string {
	if m.Hook == HookNone {
		return "-j ACCEPT"
	}
	return "-j RETURN"
}

// baseChains puts the chains into a table that every node has.
func (m *Model) baseChains(t *table) {
	put := func(name, about string, tail ...iptables.Rule) *chain {
		c := t.chain(name)
		c.fixed, c.about, c.tail = true, about, tail
		c.touch()
		return c
	}
	if m.Hook == HookForward {
		t.jump = &iptables.Rule{Target: "-j " + forwardChain, Comment: "policies of pods on this node"}
		put(forwardChain, "what passes this node", m.forwardRules(t.family)...)
	}
	put(layoutPrefix+layout, "which layout of sets and chains this is")
	put(mainChain, "packets to local pods", m.ingressRules(t.family)...)
	put(broadcastChain, "broadcast that is dropped", m.broadcastRules(t.family)...)
	put(egressChain, "packets from local pods", m.egressRules(t.family)...)
	put(defaultChain, "local pods that are not isolated, ingress", m.defaultRules(t.family, Ingress)...)
	put(egressDefaultChain, "local pods that are not isolated, egress", m.defaultRules(t.family, Egress)...)
	for _, d := range directions {
		if m.repliesApart() {
			put(repliesChain(d), "what opens no connection, "+d.String(), m.repliesRules(t.family, d)...)
		}
		c := put(isolatedChain(d), "the way to the rules of isolated pods, "+d.String(), m.isolatedRules(t.family, d)...)
		c.lazy = true
		m.ways[d].root[t.family] = c
		drop := put(dropChain(d), "report and drop, "+d.String(), iptables.Rule{Target: "-j DROP", Comment: "blocked"})
		drop.ordered = true
		for _, r := range m.reportRules(d) {
			drop.rules[r.match] = r
		}
	}
}

// forwardRules divide what is forwarded into what comes from local pods and what goes to them.
func (m *Model) forwardRules(f Family) []iptables.Rule {
	local := fixedSetName(f, localPodsName)
	var rules []iptables.Rule
	if m.AllowAction != "RETURN" {
		replies := iptables.Rule{Match: established + " " + matchSet(local, "dst"), Target: m.allowTarget(Ingress),
			Comment: "replies to local pods"}
		if m.PodInterface != "" { // a lookup less for nearly all packets
			replies.Match = "-o " + m.PodInterface + " " + established
		}
		rules = append(rules, replies)
	}
	rules = append(rules, iptables.Rule{Match: established, Target: "-j RETURN", Comment: "not for us to judge again"})
	for _, d := range [...]Direction{Egress, Ingress} {
		to, way, in := "-j "+mainChain, "to", "-o "
		if d == Egress {
			to, way, in = "-j "+egressChain, "from", "-i "
		}
		rules = append(rules, iptables.Rule{Match: matchSet(local, d.own()), Target: to, Comment: way + " a local pod"})
		byRange := iptables.Rule{Match: matchSet(fixedSetName(f, podRangeName), d.own()), Target: to,
			Comment: way + " the range of local pods"}
		if m.PodInterface != "" {
			byRange.Match, byRange.Comment = in+m.PodInterface, way+" the interface of local pods"
		}
		rules = append(rules, byRange)
	}
	if m.PodInterface == "" {
		rules = append(rules, iptables.Rule{Match: frameToAll, Target: "-j " + mainChain, Comment: "a frame to all"})
	}
	return rules
}

// multicast is the range of multicast addresses.
func multicast(f Family) string {
	if f == IPv6 {
		return "ff00::/8"
	}
	return "224.0.0.0/4"
}

// multicastRule is for what is sent to many.
func (m *Model) multicastRule(f Family, d Direction) iptables.Rule {
	r := iptables.Rule{Match: "-d " + multicast(f), Target: "-g " + dropChain(d), Comment: "multicast"}
	if m.AllowMcast {
		r.Target = m.allowTarget(d)
	}
	return r
}

// podPortNames is how CNIs that attach pods to a bridge begin the names of their ports.
const podPortNames = "veth"

// neighbourDiscovery returns the rules for the ICMPv6 types of RFC 4861, with the hop limit that shows that no router passed them on. Those
// that only routers send do not pass from a pod's port. Package node keeps that for certain; these rules stand in where the kernel has no
// nftables for bridges and until a new port is guarded.
func (m *Model) neighbourDiscovery(d Direction) []iptables.Rule {
	var rules []iptables.Rule
	for i, name := range [...]string{"router solicitation", "router advertisement", "neighbour solicitation",
		"neighbour advertisement", "redirect"} {
		kind := 133 + i
		match := fmt.Sprintf("-p icmpv6 -m icmp6 --icmpv6-type %d -m hl --hl-eq 255", kind)
		if d == Egress && (kind == 134 || kind == 137) {
			fromPod := match + " -m physdev --physdev-is-bridged --physdev-in " + podPortNames + "+"
			rules = append(rules, iptables.Rule{Match: fromPod + m.notByUplinks(), Target: "-g " + dropChain(d), Comment: name + " of a pod"})
		}
		rules = append(rules, iptables.Rule{Match: match, Target: m.allowTarget(d), Comment: name})
	}
	return rules
}

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

// hairpin matches a pod that reaches itself through a Service.
func hairpin(f Family, target string) iptables.Rule {
	program := iptables.HairpinIPv4
	if f == IPv6 {
		program = iptables.HairpinIPv6
	}
	return iptables.Rule{Match: `-m conntrack --ctstate DNAT -m bpf --bytecode "` + program + `"`, Target: target,
		Comment: "a pod reaches itself through a Service"}
}

// alwaysRules are what holds for every packet from or to a local pod.
func (m *Model) alwaysRules(f Family, d Direction) []iptables.Rule {
	allow := m.allowTarget(d)
	rules := m.repliesRules(f, d)
	if m.repliesApart() {
		rules = []iptables.Rule{{Match: notNew, Target: "-g " + repliesChain(d), Comment: "opens no connection"}}
	}
	if f == IPv6 {
		rules = append(rules, m.neighbourDiscovery(d)...)
	}
	if d == Egress { // on ingress it goes the way of strangers
		if f == IPv6 && !m.AllowMcast {
			rules = append(rules, dhcpRequest(f, allow))
		}
		rules = append(rules, m.multicastRule(f, d))
	}
	return append(rules, hairpin(f, allow))
}

// repliesRules are for packets of connections that were judged when they were opened, and for those that belong to none and open none. Of
// the latter only those of local pods are dropped for that: all others go on as if they opened one.
func (m *Model) repliesRules(f Family, d Direction) []iptables.Rule {
	rules := []iptables.Rule{{Match: established, Target: m.allowTarget(d), Comment: "replies"}}
	if m.TCPLiberal {
		return rules
	}
	rest := iptables.Rule{Match: matchSet(fixedSetName(f, localPodsName), d.own()), Target: "-j DROP",
		Comment: "belongs to no connection and opens none"}
	if !m.repliesApart() {
		rest.Match = invalid + " " + rest.Match
		return append(rules, rest)
	}
	return append(rules, rest, iptables.Rule{Target: "-g " + isolatedChain(d), Comment: "not a known pod of this node"})
}

// repliesApart says whether repliesRules have a chain of their own, which saves a packet that opens a connection one of them. Where
// WEAVE-NPC-FORWARD stands before them few packets are for them, otherwise nearly all are.
func (m *Model) repliesApart() bool { return m.Hook == HookForward && !m.TCPLiberal }

// notByUplinks returns a match of packets that come by no uplink of the pods' bridge.
func (m *Model) notByUplinks() string {
	var match string
	for _, port := range m.uplinkPorts() {
		match += " -m physdev ! --physdev-in " + port
	}
	return match
}

func (m *Model) ingressRules(f Family) []iptables.Rule {
	rules := append(m.alwaysRules(f, Ingress), m.frameToAllRule(f))
	for _, port := range m.uplinkPorts() {
		rules = append(rules, iptables.Rule{Match: "-m physdev --physdev-is-bridged --physdev-out " + port,
			Target: m.strangerTarget(), Comment: "leaves by an uplink of the bridge"})
	}
	return append(rules, iptables.Rule{Target: "-g " + defaultChain, Comment: "new connections"})
}

func (m *Model) egressRules(f Family) []iptables.Rule {
	rules := m.alwaysRules(f, Egress)
	rules = append(rules, iptables.Rule{Match: "-m addrtype --dst-type LOCAL", Target: "-j RETURN", Comment: "to this node"})
	for _, port := range m.uplinkPorts() { // bridged or routed
		rules = append(rules, iptables.Rule{Match: "-m physdev --physdev-in " + port, Target: "-j RETURN",
			Comment: "comes by an uplink of the bridge"})
	}
	return append(rules, iptables.Rule{Target: "-g " + egressDefaultChain, Comment: "new connections"})
}

func (m *Model) defaultRules(f Family, d Direction) []iptables.Rule {
	rules := []iptables.Rule{
		{Match: matchSet(fixedSetName(f, defaultAllowName(d)), d.own()), Target: m.allowTarget(d), Comment: "no policy isolates it"},
	}
	rules = append(rules, m.dhcpRules(f, d)...)
	return append(rules, iptables.Rule{Target: "-g " + isolatedChain(d), Comment: "everything else"})
}

// isolatedRules follow the ways to the namespaces' chains.
func (m *Model) isolatedRules(f Family, d Direction) []iptables.Rule {
	rules := []iptables.Rule{
		{Match: matchSet(fixedSetName(f, localPodsName), d.own()), Target: "-g " + dropChain(d),
			Comment: "isolated and nothing allows it"},
	}
	stranger := "-j RETURN"
	if d == Ingress {
		stranger = m.strangerTarget()
		rules = append(rules, m.networkBroadcastRules(f)...)
		rules = append(rules, m.multicastRule(f, d))
		if len(m.uplinks) > 0 {
			rules = append(rules, iptables.Rule{Match: "-m physdev ! --physdev-is-bridged " + matchSet(fixedSetName(f, behindName), "dst"),
				Target: stranger, Comment: "routed to what is behind an uplink of the bridge"})
		}
	}
	return append(rules, m.unknownDHCP(f, d),
		iptables.Rule{Match: matchSet(fixedSetName(f, gateName(d)), d.own()), Target: "-g " + dropChain(d),
			Comment: "unknown while a pod may be that policies isolate"},
		iptables.Rule{Target: stranger, Comment: "not a pod of this node"})
}

// reportLimit lets the first five packets through, and then one a second, that one address sends to one port of another; where there are no
// ports, to the other address. So a loop is reported now and then, and hides nobody else.
//
// An entry is 120 bytes and goes after the five seconds in which it would have filled up again. A table of 131,072 holds those of over 20,000
// new flows a second, in 16 MiB; the kernel itself drops what finds it full, without a report. Tables belong to one family of one network
// namespace and are found there by their name, with whatever numbers they were made: other numbers need another name.
const reportLimit = "-m hashlimit --hashlimit-upto 1/second --hashlimit-burst 5 --hashlimit-mode srcip,dstip,dstport " +
	"--hashlimit-name weave-npc-%s-1 --hashlimit-htable-size 16384 --hashlimit-htable-max 131072 --hashlimit-htable-expire 5000"

// BlockedMark is what a packet that we report is marked with, on its way to being dropped: others may report packets to our groups, and
// what is read there has no prefix. It says "weav" in ASCII.
const BlockedMark = 0x77656176

// reportRules report the first packets of a flow, their headers at least. A kernel that lacks what they take drops without a report.
func (m *Model) reportRules(d Direction) []*rule {
	return []*rule{
		{
			match:   firstOnes,
			target:  fmt.Sprintf("-j MARK --set-xmark %#x/0xffffffff", BlockedMark),
			about:   "blocked: marked as ours",
			order:   1,
			reports: true,
		},
		{
			match: firstOnes + " " + fmt.Sprintf(reportLimit, d),
			target: fmt.Sprintf(`-j NFLOG --nflog-group %d --nflog-size 128 --nflog-prefix "weave-npc blocked %s"`,
				m.NFLogGroup+uint16(d), d),
			about:   "blocked: reported",
			order:   2,
			reports: true,
		},
	}
}
