package traffic_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/npc/traffic"
)

func TestProtocols(t *testing.T) {
	for _, c := range []struct {
		api    corev1.Protocol
		name   string
		number uint8
	}{{"TCP", "tcp", 6}, {"UDP", "udp", 17}, {"SCTP", "sctp", 132}} {
		if got := traffic.PortProtocol(c.api); got != c.number {
			t.Errorf("%s has number %d", c.api, got)
		}
		if got := traffic.APIProtocol(c.number); got != c.api {
			t.Errorf("%d is %q in objects", c.number, got)
		}
		if got := traffic.ProtocolName(c.number); got != c.name {
			t.Errorf("%d has name %s", c.number, got)
		}
		if got, ok := traffic.ProtocolNumber(c.name); !ok || got != c.number {
			t.Errorf("%s has number %d", c.name, got)
		}
	}
	for p, want := range map[corev1.Protocol]uint8{"": 6, "ICMP": 0, "tcp": 0} {
		if got := traffic.PortProtocol(p); got != want {
			t.Errorf("port of %q has protocol %d, want %d", p, got, want)
		}
	}
	if got := traffic.ProtocolName(47); got != "47" {
		t.Errorf("GRE has name %s", got)
	}
	if n, ok := traffic.ProtocolNumber("TCP"); !ok || n != 6 {
		t.Errorf("TCP has number %d", n)
	}
	if n, ok := traffic.ProtocolNumber("icmp"); ok || traffic.APIProtocol(1) != "" {
		t.Errorf("icmp, which has no ports, has number %d", n)
	}
}
