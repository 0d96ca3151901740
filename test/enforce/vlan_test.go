package enforce

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

// tags returns the VLAN tags that a frame may carry, by the names of their standards.
func tags() map[string][]uint16 {
	return map[string][]uint16{"802.1Q": {0x8100}, "802.1ad": {0x88a8}, "802.1ad with 802.1Q": {0x88a8, 0x8100}}
}

// tagged returns an IP packet in a frame with VLAN tags of number 0, which receivers take for no VLAN.
func tagged(t *testing.T, from, to *lab.Host, stack []uint16, packet []byte) []byte {
	t.Helper()
	frame := append(hardwareAddrOf(t, to), hardwareAddrOf(t, from)...)
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

func hardwareAddrOf(t *testing.T, h *lab.Host) (a net.HardwareAddr) {
	t.Helper()
	if err := h.Do(func() error {
		link, err := net.InterfaceByName("eth0")
		if err == nil {
			a = link.HardwareAddr
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return a
}

// tunnels reports whether another host sees what a host sends in frames with VLAN tags.
func (w *harness) tunnels(t *testing.T, from, to *lab.Host, family int, stack []uint16) bool {
	t.Helper()
	const payload = "in a VLAN"
	frame := tagged(t, from, to, stack, craft(t, from.Addr(family), to.Addr(family), 64, udp(53, payload)...))
	return announces(t, from, to, []byte(payload), frame)
}

func (w *harness) expectTunnels(t *testing.T, from, to string, wanted bool) {
	t.Helper()
	for name, tag := range tags() {
		families(func(family int) {
			if w.tunnels(t, w.hosts[from], w.hosts[to], family, tag) != wanted {
				t.Errorf("%s, IPv%d from %s to %s: it must arrive: %t\n%s", name, family, from, to, wanted,
					run(t, w.places[w.hosts[from]].Host, "nft", "list", "ruleset", "bridge"))
			}
		})
	}
}

func TestVLANTagsAreNoWayAround(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		closed := do(base(), policy("shop/p", `{podSelector: {}, policyTypes: [Ingress, Egress]}`))
		w := start(t, backend, closed)
		n := w.Node("node1")
		w.expectTunnels(t, "db", "web", false)

		said := w.daemons[0].log.len()
		w.daemons[0].log.expect("drift found")
		run(t, n.Host, "nft", "delete", "table", "bridge", "weave-npc")
		w.daemons[0].awaitLine(t, said, "drift found")
		w.awaitGuard(t, n, "db")
		w.expectTunnels(t, "db", "web", false)

		w.addPod(t, "node1", "late", lab.PodConfig{})
		w.awaitGuard(t, n, "late")
		w.expectTunnels(t, "late", "web", false)
	})
}

// awaitGuard waits until the port of a pod is guarded.
func (w *harness) awaitGuard(t *testing.T, n *lab.Node, pod string) {
	t.Helper()
	var ports string
	await.Within(t, converged, func() bool {
		ports = run(t, n.Host, "nft", "list", "ruleset", "bridge")
		return strings.Contains(ports, `"`+w.veths[pod]+`"`)
	}, func() string { return pod + " (" + w.veths[pod] + ") is not guarded:\n" + ports })
}

func TestAllowVLAN(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, do(base(), policy("shop/p", `{podSelector: {}}`)), "--allow-vlan")
		w.expectTunnels(t, "db", "web", true)
	})
}
