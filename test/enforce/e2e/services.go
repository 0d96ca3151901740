package e2e

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/lab"
)

// JumpsOfCNI makes what a CNI has that jumps to the chains of weave-npc itself.
func (w *Cluster) JumpsOfCNI(t *testing.T) {
	t.Helper()
	for _, n := range w.Nodes() {
		for _, iptables := range []string{"iptables-", "ip6tables-"} {
			for _, args := range []string{"-N WEAVE-NPC", "-N WEAVE-NPC-EGRESS",
				"-A FORWARD -i cni0 -j WEAVE-NPC-EGRESS",
				"-A FORWARD -o cni0 -j WEAVE-NPC", "-A FORWARD -o cni0 -j DROP",
				"-A INPUT -i cni0 -j WEAVE-NPC-EGRESS"} {
				Run(t, n.Host, iptables+string(w.Backend), append([]string{"-w"}, strings.Fields(args)...)...)
			}
		}
	}
}

// ServiceAddr returns the virtual address of a service.
func ServiceAddr(family int, number byte, port uint16) netip.AddrPort {
	addr := netip.AddrFrom4([4]byte{10, 96, 0, number})
	if family == 6 {
		addr = netip.AddrFrom16([16]byte{0xfd, 0x10, 0, 0x96, 15: number})
	}
	return netip.AddrPortFrom(addr, port)
}

// Service makes a node translate a virtual address to a pod's.
func (w *Cluster) Service(t *testing.T, node string, family int, number byte, proto string, port uint16, pod string,
	podPort uint16) netip.AddrPort {
	t.Helper()
	virtual := ServiceAddr(family, number, port)
	w.Translate(t, node, proto, virtual, netip.AddrPortFrom(w.Hosts[pod].Addr(family), podPort))
	return virtual
}

// Translate makes a node translate a virtual address to that of a pod.
func (w *Cluster) Translate(t *testing.T, node, proto string, virtual, pod netip.AddrPort) {
	t.Helper()
	for _, n := range w.Nodes() {
		if n.Host != w.Hosts[node] {
			continue
		}
		service := lab.Service{Backend: w.Backend, Proto: proto, Virtual: virtual, Pod: pod}
		if err := n.AddService(t.Context(), service); err != nil {
			t.Fatal(err)
		}
	}
}
