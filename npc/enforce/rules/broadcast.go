package rules

import (
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// A bridge floods broadcast to every pod, isolated or not, and its destination does not identify a pod. All broadcast
// is dropped while a local pod is isolated for ingress. A set decides, as for all isolation: it contains every address
// while broadcast is dropped, and none otherwise.

const (
	// frameToAll matches broadcast frames with any IP address.
	frameToAll = "-m pkttype --pkt-type broadcast"
	// toOne matches frames for one receiver.
	toOne = "-m pkttype --pkt-type unicast"
)

// multicast returns the range of multicast addresses.
func multicast(f npc.Family) string {
	if f == npc.IPv6 {
		return "ff00::/8"
	}
	return "224.0.0.0/4"
}

// toMany returns matches of the frames that a bridge floods and whose IP address does not say so: broadcast, and frames
// to groups for one receiver.
func toMany(f npc.Family) []string {
	return []string{frameToAll, "! -d " + multicast(f) + " -m pkttype --pkt-type multicast"}
}

// frameToAllRules match frames that a bridge floods.
func frameToAllRules(f npc.Family, target string) (rules []iptables.Rule) {
	for _, match := range toMany(f) {
		rules = append(rules, iptables.Rule{Match: match, Target: target, Comment: "a frame to all"})
	}
	return rules
}

// droppedFramesToAll match frames that a bridge floods and whose destination is in a set, except from uplinks. They
// precede the rules that match the packet's address.
func droppedFramesToAll(f npc.Family, set string, uplinks []string, target string) (rules []iptables.Rule) {
	for _, match := range toMany(f) {
		rules = append(rules, iptables.Rule{Match: match + " " + naming.Match(set, "dst") + notByUplinks(uplinks),
			Target:  target,
			Comment: "a frame to all while a local pod is isolated"})
	}
	return rules
}

// droppedBroadcast matches packets in any frame to an IPv4 broadcast address that is in a set, except from uplinks. No
// local pod has such an address, so the rule follows all rules for pods.
func droppedBroadcast(set string, uplinks []string, target string) iptables.Rule {
	return iptables.Rule{Match: naming.Match(set, "dst") + " -m addrtype --dst-type BROADCAST" +
		notByUplinks(uplinks), Target: target,
		Comment: "broadcast while a local pod is isolated"}
}
