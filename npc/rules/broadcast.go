package rules

import "github.com/weave-npc/weave-npc/iptables"

// Broadcast reaches every pod of a bridge, whoever is isolated: a bridge floods it, and one pod cannot be told from another by its
// destination. So none passes while a local pod is isolated for ingress. A set decides, as everywhere for isolation: it has every address
// while broadcast is dropped, and none otherwise.

// frameToAll matches frames to all, whatever the address in them is.
const frameToAll = "-m pkttype --pkt-type broadcast"

// frameToAllRule matches frames to all.
func frameToAllRule(target string) iptables.Rule {
	return iptables.Rule{Match: frameToAll, Target: target, Comment: "a frame to all"}
}

// droppedFrameToAll matches frames to all while a set has their destination, except from uplinks. It stands before the rules that judge by a
// packet's address.
func droppedFrameToAll(set string, uplinks []string, target string) iptables.Rule {
	return iptables.Rule{Match: frameToAll + " -m set --match-set " + set + " dst" + notByUplinks(uplinks), Target: target,
		Comment: "a frame to all while a local pod is isolated"}
}

// droppedBroadcast matches what is sent to the IPv4 broadcast address of a network or to that of everybody, in whatever frame, while a set
// has it, except from uplinks. No local pod has such an address, so it stands behind all rules that are for pods.
func droppedBroadcast(set string, uplinks []string, target string) iptables.Rule {
	return iptables.Rule{Match: "-m set --match-set " + set + " dst -m addrtype --dst-type BROADCAST" + notByUplinks(uplinks), Target: target,
		Comment: "broadcast while a local pod is isolated"}
}
