package npc

import (
	"net/netip"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
)

// Broadcast reaches every pod of a bridge, whoever is isolated: a bridge floods it, and one pod cannot be told from another by its
// destination. So none passes while a local pod is isolated for ingress. A set says so, as for all that isolation decides: it has every
// address while broadcast is dropped, and none otherwise.

// toEverybody are the addresses that reach every pod of a bridge, whatever its network is.
func toEverybody() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("255.255.255.255/32"), netip.MustParsePrefix("0.0.0.0/32")}
}

// broadcastClosed returns why broadcast is dropped; it is empty if it is not.
func (m *Model) broadcastClosed(now time.Time) string {
	if m.isolatedPods[Ingress] > 0 {
		return "a local pod is isolated"
	}
	return m.closedBy(Ingress, now)
}

// setBroadcast brings the sets up to date that say whether broadcast is dropped.
func (m *Model) setBroadcast(now time.Time) {
	why := m.broadcastClosed(now)
	if why == m.gates.broadcastClosed {
		return
	}
	m.gates.broadcastClosed = why
	for f, all := range everything {
		s := m.gates.broadcast[f]
		for _, p := range halves(all) {
			if why == "" {
				s.remove(ipset.Net(p))
			} else {
				s.add(ipset.Net(p), ipset.Attr{Comment: comment(why)})
			}
		}
	}
}

// everything is all addresses of each family.
var everything = [len(families)]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// frameToAll matches frames to all, whatever the address in them is.
const frameToAll = "-m pkttype --pkt-type broadcast"

// frameToAllRule stands before the rules that judge by a packet's address.
func (m *Model) frameToAllRule(f Family) iptables.Rule {
	return iptables.Rule{Match: frameToAll + " " + broadcastDropped(f) + m.notByUplinks(), Target: "-g " + broadcastChain,
		Comment: "a frame to all while a local pod is isolated"}
}

// networkBroadcastRules are for what is sent to the address of a network, or to that of everybody, in whatever frame. No local pod has such
// an address, so they stand behind all that is for pods. IPv6 has none.
func (m *Model) networkBroadcastRules(f Family) []iptables.Rule {
	if f == IPv6 {
		return nil
	}
	return []iptables.Rule{{Match: broadcastDropped(f) + " -m addrtype --dst-type BROADCAST" + m.notByUplinks(), Target: "-g " + broadcastChain,
		Comment: "broadcast while a local pod is isolated"}}
}

// broadcastDropped matches every packet while broadcast is dropped.
func broadcastDropped(f Family) string { return matchSet(fixedSetName(f, broadcastName), "dst") }

// broadcastRules are for broadcast that is dropped.
func (m *Model) broadcastRules(f Family) []iptables.Rule {
	return append(m.dhcpRules(f, Ingress), iptables.Rule{Target: "-g " + dropChain(Ingress), Comment: "reaches every pod"})
}
