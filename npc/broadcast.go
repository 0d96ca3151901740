package npc

import (
	"net/netip"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/ipblock"
)

// toEverybody are the addresses that reach every pod of a bridge, whatever its network is.
func toEverybody() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("255.255.255.255/32"), netip.MustParsePrefix("0.0.0.0/32")}
}

// setBroadcast brings the sets up to date that decide whether broadcast is dropped: while a local pod is isolated for ingress, or one may be
// that is not known yet.
func (m *Model) setBroadcast(now time.Time) {
	why := m.closedBy(Ingress, now)
	if m.isolatedPods[Ingress] > 0 {
		why = "a local pod is isolated"
	}
	if why == m.gates.broadcastClosed {
		return
	}
	m.gates.broadcastClosed = why
	for f, all := range [...]string{"0.0.0.0/0", "::/0"} {
		want := map[ipset.Entry]ipset.Attr{}
		for _, p := range ipblock.Halves(netip.MustParsePrefix(all)) {
			if why != "" {
				want[ipset.Net(p)] = ipset.Attr{Comment: comment(why)}
			}
		}
		m.gates.broadcast[f].become(want)
	}
}
