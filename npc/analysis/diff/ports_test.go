package diff

import (
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// TestExamples have a port that the destination declares, if there is one.
func TestExamples(t *testing.T) {
	all := Ports{{Protocol: npc.TCP, First: 1, Last: flow.LastPort}, {Protocol: npc.UDP, First: 1, Last: flow.LastPort}}
	for _, c := range []struct {
		name     string
		ports    Ports
		declared []npc.NamedPort
		want     string
	}{
		{"none is declared", all, nil, "tcp/80"},
		{"one is declared", all, []npc.NamedPort{{Protocol: npc.TCP, Port: 7070}}, "tcp/7070"},
		{"another protocol", all, []npc.NamedPort{{Name: "dns", Protocol: npc.UDP, Port: 53}}, "udp/53"},
		{"the second one differs", Ports{{Protocol: npc.TCP, First: 9090, Last: 9099}},
			[]npc.NamedPort{{Protocol: npc.TCP, Port: 7070}, {Protocol: npc.TCP, Port: 9091}}, "tcp/9091"},
		{"no declared one differs", Ports{{Protocol: npc.TCP, First: 400, Last: 500}}, []npc.NamedPort{{Protocol: npc.TCP, Port: 80}}, "tcp/443"},
	} {
		if got := c.ports.example(c.declared).String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
