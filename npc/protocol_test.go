package npc_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/npc"
)

func TestProtocols(t *testing.T) {
	for _, c := range []struct {
		api    corev1.Protocol
		name   string
		number uint8
	}{{"TCP", "tcp", 6}, {"UDP", "udp", 17}, {"SCTP", "sctp", 132}} {
		if got := npc.PortProtocol(c.api); got != c.number {
			t.Errorf("%s has number %d", c.api, got)
		}
		if got := npc.APIProtocol(c.number); got != c.api {
			t.Errorf("%d is %q in objects", c.number, got)
		}
		if got := npc.ProtocolName(c.number); got != c.name {
			t.Errorf("%d has name %s", c.number, got)
		}
		if got, ok := npc.ProtocolNumber(c.name); !ok || got != c.number {
			t.Errorf("%s has number %d", c.name, got)
		}
	}
	for p, want := range map[corev1.Protocol]uint8{"": 6, "ICMP": 0, "tcp": 0} {
		if got := npc.PortProtocol(p); got != want {
			t.Errorf("port of %q has protocol %d, want %d", p, got, want)
		}
	}
	if got := npc.ProtocolName(47); got != "47" {
		t.Errorf("GRE has name %s", got)
	}
	if n, ok := npc.ProtocolNumber("TCP"); !ok || n != 6 {
		t.Errorf("TCP has number %d", n)
	}
	if n, ok := npc.ProtocolNumber("icmp"); ok || npc.APIProtocol(1) != "" {
		t.Errorf("icmp, which has no ports, has number %d", n)
	}
}
