package npc

import (
	"fmt"
	"slices"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/naming"
	render "github.com/weave-npc/weave-npc/npc/rules"
)

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
func (c *Config) allowTarget(d Direction) string {
	if d == Egress || c.Hook == HookForward && c.AllowAction == "RETURN" {
		return "-j RETURN"
	}
	return "-j ACCEPT"
}

// strangerTarget is what a packet gets on ingress that is not ours to judge. A CNI that jumps to us drops
// what we return.
func (c *Config) strangerTarget() string {
	if c.Hook == HookNone {
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
		t.jump = &iptables.Rule{Target: "-j " + naming.ForwardChain, Comment: "policies of pods on this node"}
		put(naming.ForwardChain, "what passes this node", m.forwardRules(t.family)...)
	}
	put(naming.LayoutPrefix+naming.Layout, "which layout of sets and chains this is")
	put(naming.MainChain, "packets to local pods", m.ingressRules(t.family)...)
	put(naming.BroadcastChain, "broadcast that is dropped", m.broadcastRules(t.family)...)
	put(naming.EgressChain, "packets from local pods", m.egressRules(t.family)...)
	put(naming.DefaultChain, "local pods that are not isolated, ingress", m.defaultRules(t.family, Ingress)...)
	put(naming.EgressDefaultChain, "local pods that are not isolated, egress", m.defaultRules(t.family, Egress)...)
	for _, d := range directions {
		if m.repliesApart() {
			put(naming.RepliesChain(d), "what opens no connection, "+d.String(), m.repliesRules(t.family, d)...)
		}
		c := put(naming.IsolatedChain(d), "the way to the rules of isolated pods, "+d.String(), m.isolatedRules(t.family, d)...)
		c.lazy = true
		m.ways[d].root[t.family] = c
		drop := put(naming.DropChain(d), "report and drop, "+d.String(), iptables.Rule{Target: "-j DROP", Comment: "blocked"})
		drop.ordered = true
		for _, r := range m.reportRules(d) {
			drop.rules[r.match] = r
		}
	}
}

// forwardRules divide what is forwarded into what comes from local pods and what goes to them.
func (m *Model) forwardRules(f Family) []iptables.Rule {
	local := naming.FixedSet(f, naming.LocalPods)
	var rules []iptables.Rule
	if m.AllowAction != "RETURN" {
		replies := iptables.Rule{Match: established + " " + naming.Match(local, "dst"), Target: m.allowTarget(Ingress),
			Comment: "replies to local pods"}
		if m.PodInterface != "" { // a lookup less for nearly all packets
			replies.Match = "-o " + m.PodInterface + " " + established
		}
		rules = append(rules, replies)
	}
	rules = append(rules, iptables.Rule{Match: established, Target: "-j RETURN", Comment: "not for us to judge again"})
	for _, d := range [...]Direction{Egress, Ingress} {
		to, way, in := "-j "+naming.MainChain, "to", "-o "
		if d == Egress {
			to, way, in = "-j "+naming.EgressChain, "from", "-i "
		}
		rules = append(rules, iptables.Rule{Match: naming.Match(local, d.Own()), Target: to, Comment: way + " a local pod"})
		byRange := iptables.Rule{Match: naming.Match(naming.FixedSet(f, naming.PodRange), d.Own()), Target: to,
			Comment: way + " the range of local pods"}
		if m.PodInterface != "" {
			byRange.Match, byRange.Comment = in+m.PodInterface, way+" the interface of local pods"
		}
		rules = append(rules, byRange)
	}
	if m.PodInterface == "" {
		rules = append(rules, render.FrameToAll("-j "+naming.MainChain))
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
	r := iptables.Rule{Match: "-d " + multicast(f), Target: "-g " + naming.DropChain(d), Comment: "multicast"}
	if m.AllowMcast {
		r.Target = m.allowTarget(d)
	}
	return r
}

// alwaysRules are what holds for every packet from or to a local pod.
func (m *Model) alwaysRules(f Family, d Direction) []iptables.Rule {
	allow := m.allowTarget(d)
	rules := m.repliesRules(f, d)
	if m.repliesApart() {
		rules = []iptables.Rule{{Match: notNew, Target: "-g " + naming.RepliesChain(d), Comment: "opens no connection"}}
	}
	if f == IPv6 {
		if d == Egress {
			rules = append(rules, render.FromRouters(m.uplinkPorts(), "-g "+naming.DropChain(d))...)
		}
		rules = append(rules, render.NeighbourDiscovery(allow)...)
	}
	if d == Egress { // on ingress it goes the way of strangers
		if f == IPv6 && !m.AllowMcast {
			rules = append(rules, render.DHCPRequest(f.IPTables(), allow))
		}
		rules = append(rules, m.multicastRule(f, d))
	}
	return append(rules, render.Hairpin(f.IPTables(), allow))
}

// repliesRules are for packets of connections that were judged when they were opened, and for those that belong to none and open none. Of
// the latter only those of local pods are dropped for that: all others go on as if they opened one.
func (m *Model) repliesRules(f Family, d Direction) []iptables.Rule {
	rules := []iptables.Rule{{Match: established, Target: m.allowTarget(d), Comment: "replies"}}
	if m.TCPLiberal {
		return rules
	}
	rest := iptables.Rule{Match: naming.Match(naming.FixedSet(f, naming.LocalPods), d.Own()), Target: "-j DROP",
		Comment: "belongs to no connection and opens none"}
	if !m.repliesApart() {
		rest.Match = invalid + " " + rest.Match
		return append(rules, rest)
	}
	return append(rules, rest, iptables.Rule{Target: "-g " + naming.IsolatedChain(d), Comment: "not a known pod of this node"})
}

// repliesApart says whether repliesRules have a chain of their own, which saves a packet that opens a connection one of them. Where
// WEAVE-NPC-FORWARD stands before them few packets are for them, otherwise nearly all are.
func (m *Model) repliesApart() bool { return m.Hook == HookForward && !m.TCPLiberal }

// uplinkPorts are the ports of the pods' bridge that lead away from the pods of this node.
func (m *Model) uplinkPorts() []string {
	ports := slices.Clone(m.uplinks)
	if m.BridgePort != "" && !slices.Contains(ports, m.BridgePort) {
		ports = append(ports, m.BridgePort)
	}
	slices.Sort(ports)
	return ports
}

func (m *Model) ingressRules(f Family) []iptables.Rule {
	rules := m.alwaysRules(f, Ingress)
	rules = append(rules, render.DroppedFrameToAll(naming.FixedSet(f, naming.Broadcast), m.uplinkPorts(), "-g "+naming.BroadcastChain))
	rules = append(rules, render.ToUplinks(m.uplinkPorts(), m.strangerTarget())...)
	return append(rules, iptables.Rule{Target: "-g " + naming.DefaultChain, Comment: "new connections"})
}

func (m *Model) egressRules(f Family) []iptables.Rule {
	rules := m.alwaysRules(f, Egress)
	rules = append(rules, iptables.Rule{Match: "-m addrtype --dst-type LOCAL", Target: "-j RETURN", Comment: "to this node"})
	rules = append(rules, render.FromUplinks(m.uplinkPorts(), "-j RETURN")...)
	return append(rules, iptables.Rule{Target: "-g " + naming.EgressDefaultChain, Comment: "new connections"})
}

func (m *Model) defaultRules(f Family, d Direction) []iptables.Rule {
	rules := []iptables.Rule{
		{Match: naming.Match(naming.FixedSet(f, naming.DefaultAllow(d)), d.Own()), Target: m.allowTarget(d), Comment: "no policy isolates it"},
	}
	rules = append(rules, m.dhcpRules(f, d)...)
	return append(rules, iptables.Rule{Target: "-g " + naming.IsolatedChain(d), Comment: "everything else"})
}

// dhcpRules let a client pass that asks all servers, and a server that answers.
func (m *Model) dhcpRules(f Family, d Direction) []iptables.Rule {
	switch allow := m.allowTarget(d); {
	case f == IPv4 && d == Ingress:
		return []iptables.Rule{render.DHCPRequest(f.IPTables(), allow), render.DHCPReply(allow)}
	case f == IPv4 || d == Ingress && !m.AllowMcast: // else it passes as multicast, or has passed before it
		return []iptables.Rule{render.DHCPRequest(f.IPTables(), allow)}
	}
	return nil
}

// broadcastRules are for broadcast that is dropped.
func (m *Model) broadcastRules(f Family) []iptables.Rule {
	return append(m.dhcpRules(f, Ingress), iptables.Rule{Target: "-g " + naming.DropChain(Ingress), Comment: "reaches every pod"})
}

// isolatedRules follow the ways to the namespaces' chains.
func (m *Model) isolatedRules(f Family, d Direction) []iptables.Rule {
	rules := []iptables.Rule{
		{Match: naming.Match(naming.FixedSet(f, naming.LocalPods), d.Own()), Target: "-g " + naming.DropChain(d),
			Comment: "isolated and nothing allows it"},
	}
	stranger := "-j RETURN"
	if d == Ingress {
		stranger = m.strangerTarget()
		if f == IPv4 {
			rules = append(rules, render.DroppedBroadcast(naming.FixedSet(f, naming.Broadcast), m.uplinkPorts(), "-g "+naming.BroadcastChain))
		}
		rules = append(rules, m.multicastRule(f, d))
		if len(m.uplinks) > 0 {
			rules = append(rules, render.RoutedTo(naming.FixedSet(f, naming.BehindUplinks), stranger))
		}
	}
	return append(rules, render.UnknownDHCP(f.IPTables(), m.allowTarget(d)),
		iptables.Rule{Match: naming.Match(naming.FixedSet(f, naming.Gate(d)), d.Own()), Target: "-g " + naming.DropChain(d),
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
