package wire

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// tags returns the VLAN tags that a frame may carry, by the names of their standards.
func tags() map[string][]uint16 {
	return map[string][]uint16{"802.1Q": {0x8100}, "802.1ad": {0x88a8}, "802.1ad with 802.1Q": {0x88a8, 0x8100}}
}

// tagged returns an IP packet in a frame with VLAN tags of number 0, which receivers take for no VLAN.
func tagged(t *testing.T, from, to *lab.Host, stack []uint16, packet []byte) []byte {
	t.Helper()
	frame := append(e2e.HardwareAddr(t, to), e2e.HardwareAddr(t, from)...)
	for _, tag := range stack {
		frame = binary.BigEndian.AppendUint16(frame, tag)
		frame = append(frame, 0, 0)
	}
	kind := uint16(0x0800)
	if packet[0]>>4 == 6 {
		kind = 0x86dd
	}
	return append(binary.BigEndian.AppendUint16(frame, kind), packet...)
}

// tunnelsThrough reports whether another host sees what a host sends in frames with VLAN tags.
func tunnelsThrough(t *testing.T, w *e2e.Cluster, from, to *lab.Host, family int, stack []uint16) bool {
	t.Helper()
	const payload = "in a VLAN"
	frame := tagged(t, from, to, stack, e2e.Craft(t, from.Addr(family), to.Addr(family), 64, e2e.UDP(53, payload)...))
	return announces(t, from, to, []byte(payload), frame)
}

func expectTunnels(t *testing.T, w *e2e.Cluster, from, to string, wanted bool) {
	t.Helper()
	for name, tag := range tags() {
		e2e.EachFamily(func(family int) {
			if tunnelsThrough(t, w, w.Hosts[from], w.Hosts[to], family, tag) != wanted {
				t.Errorf("%s, IPv%d from %s to %s: it must arrive: %t\n%s", name, family, from, to, wanted,
					e2e.Run(t, w.Places[w.Hosts[from]].Host, "nft", "list", "ruleset", "bridge"))
			}
		})
	}
}

func TestVLANTagsAreNoWayAround(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		closed := e2e.Do(e2e.Base(), e2e.Policy("shop/p", `{podSelector: {}, policyTypes: [Ingress, Egress]}`))
		w := e2e.Start(t, backend, closed)
		n := w.Node("node1")
		expectTunnels(t, w, "db", "web", false)

		said := w.Daemons[0].Log.Len()
		w.Daemons[0].Log.Expect("drift found")
		e2e.Run(t, n.Host, "nft", "delete", "table", "bridge", "weave-npc")
		w.Daemons[0].AwaitLine(t, said, "drift found")
		awaitGuard(t, w, n, "db")
		expectTunnels(t, w, "db", "web", false)

		w.AddPod(t, "node1", "late", lab.PodConfig{})
		awaitGuard(t, w, n, "late")
		expectTunnels(t, w, "late", "web", false)
	})
}

// awaitGuard waits until the port of a pod is guarded.
func awaitGuard(t *testing.T, w *e2e.Cluster, n *lab.Node, pod string) {
	t.Helper()
	var ports string
	await.Within(t, e2e.Converged, func() bool {
		ports = e2e.Run(t, n.Host, "nft", "list", "ruleset", "bridge")
		return strings.Contains(ports, `"`+w.Veths[pod]+`"`)
	}, func() string { return pod + " (" + w.Veths[pod] + ") is not guarded:\n" + ports })
}

func TestAllowVLAN(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Do(e2e.Base(), e2e.Policy("shop/p", `{podSelector: {}}`)), "--allow-vlan")
		expectTunnels(t, w, "db", "web", true)
	})
}
