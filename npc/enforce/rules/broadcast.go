package rules

import "github.com/weave-npc/weave-npc/iptables"

// A bridge floods broadcast to every pod, isolated or not, and its destination does not identify a pod. All broadcast
// is dropped while a local pod is isolated for ingress. A set decides, as for all isolation: it contains every address
// while broadcast is dropped, and none otherwise.

// frameToAll matches broadcast frames with any IP address.
const frameToAll = "-m pkttype --pkt-type broadcast"

// frameToAllRule matches broadcast frames.
func frameToAllRule(target string) iptables.Rule {
	return iptables.Rule{Match: frameToAll, Target: target, Comment: "a frame to all"}
}

// droppedFrameToAll matches broadcast frames whose destination is in a set, except from uplinks. It precedes the rules
// that match the packet's address.
func droppedFrameToAll(set string, uplinks []string, target string) iptables.Rule {
	return iptables.Rule{Match: frameToAll + " -m set --match-set " + set + " dst" + notByUplinks(uplinks),
		Target:  target,
		Comment: "a frame to all while a local pod is isolated"}
}

// droppedBroadcast matches packets in any frame to an IPv4 broadcast address that is in a set, except from uplinks. No
// local pod has such an address, so the rule follows all rules for pods.
func droppedBroadcast(set string, uplinks []string, target string) iptables.Rule {
	return iptables.Rule{Match: "-m set --match-set " + set + " dst -m addrtype --dst-type BROADCAST" +
		notByUplinks(uplinks), Target: target,
		Comment: "broadcast while a local pod is isolated"}
}
