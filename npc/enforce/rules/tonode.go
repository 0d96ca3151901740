package rules

import (
	"fmt"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// What pods send to their own node passes INPUT, by whatever address: the node's, broadcast, a group. It is evaluated
// while a policy may deny a local pod the node. IPv6 link-local sources do not identify a pod. They are those of pods if
// they come in by a pods' interface, and then pass if the fail-closed filter is open to them.

const (
	// toNode matches packets to addresses of the node.
	toNode = "-m addrtype --dst-type LOCAL"
	// linkLocal is the range of IPv6 addresses that are valid on one link only.
	linkLocal = "fe80::/10"
	// toNodeComment is the comment of rules of INPUT.
	toNodeComment = "from a local pod to this node"
)

// ToNode returns the rules of INPUT for packets of local pods that open a connection.
func (b *Base) ToNode(f npc.Family) []iptables.Rule {
	matches := []string{naming.Match(naming.FixedSet(f, naming.LocalPods), "src")}
	switch {
	case f == npc.IPv4:
	case b.PodInterface != "":
		matches = append(matches, "-s "+linkLocal+" -i "+b.PodInterface)
	default:
		matches = append(matches, "-s "+linkLocal+" -i "+podPortNames+"+",
			"-s "+linkLocal+" -m physdev --physdev-in "+podPortNames+"+")
	}
	var rules []iptables.Rule
	for _, m := range matches {
		rules = append(rules, iptables.Rule{Match: opening + " " + m, Target: "-j " + naming.InputChain,
			Comment: toNodeComment})
	}
	return rules
}

// FormerToNode returns the rule that INPUT had instead before WEAVE-NPC-INPUT existed. It goes.
func FormerToNode(f npc.Family) iptables.Rule {
	return iptables.Rule{Match: "-m conntrack --ctstate NEW,UNTRACKED " +
		naming.Match(naming.FixedSet(f, naming.LocalPods), "src") + " " + toNode,
		Target: "-j " + naming.EgressChain, Comment: toNodeComment}
}

// Input returns the rules of WEAVE-NPC-INPUT. They are those for packets from local pods, except that --allow-mcast
// does not decide about groups: what no policy denies passes to the node.
func (b *Base) Input(f npc.Family) []iptables.Rule {
	allow := b.AllowTarget(npc.Egress)
	rules := append(expected(b.Helpers, allow), iptables.Rule{Match: icmp(f) + " " + related,
		Target: "-g " + naming.RepliesChain(npc.Egress), Comment: "an ICMP error"})
	if f == npc.IPv6 {
		rules = append(rules, neighbourDiscovery(allow)...)
	}
	rules = append(rules, linkNeeds(f, allow)...)
	rules = append(rules, fromUplinks(b.uplinkPorts(), allow)...)
	rules = append(rules, b.toTier(f, policy.Admin, npc.Egress)...)
	return append(rules, iptables.Rule{Target: "-g " + naming.NewChain(npc.Egress), Comment: "new connections"})
}

// linkNeeds match what a host sends to keep its addresses and groups: DHCP, and IGMP (RFC 3376) or MLD (RFC 3810).
func linkNeeds(f npc.Family, target string) []iptables.Rule {
	rules := []iptables.Rule{dhcpRequest(naming.IPTables(f), target)}
	if f == npc.IPv4 {
		return append(rules, iptables.Rule{Match: "-p igmp -d " + multicast(f), Target: target, Comment: "IGMP"})
	}
	for _, kind := range [...]int{130, 131, 132, 143} {
		rules = append(rules, iptables.Rule{
			Match:  fmt.Sprintf("-p icmpv6 -d %s -m icmp6 --icmpv6-type %d -m hl --hl-eq 1", multicast(f), kind),
			Target: target, Comment: "MLD"})
	}
	return rules
}

// toNodeRules let all else pass that is for the node itself, except of pods that are closed to it. Bridged broadcast is
// for other pods; bridged groups were matched before, and broadcast is not routed.
func toNodeRules(f npc.Family) []iptables.Rule {
	open := " " + naming.NoMatch(naming.FixedSet(f, naming.Closed), "src")
	if f == npc.IPv6 {
		open += " ! -s " + linkLocal
	}
	rules := []iptables.Rule{{Match: toNode + open, Target: "-j RETURN", Comment: "to this node"},
		{Match: "-d " + multicast(f) + open, Target: "-j RETURN", Comment: "to a group, this node among it"}}
	if f == npc.IPv4 {
		rules = append(rules, iptables.Rule{Match: frameToAll + " -m physdev ! --physdev-is-bridged" + open,
			Target: "-j RETURN", Comment: "to all, this node among them"})
	}
	return rules
}
