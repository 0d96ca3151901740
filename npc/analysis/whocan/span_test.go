package whocan

import (
	"fmt"
	"testing"

	"github.com/weave-npc/weave-npc/npc/flow"
)

// TestMergedSpans are those of neighbouring ports with the same answer, never of two protocols unless everything has
// it.
func TestMergedSpans(t *testing.T) {
	of := func(protocol uint8, first, last uint16, answer string) Span {
		return Span{Ports: flow.Ports{Protocol: protocol, First: first, Last: last}, Reach: answer}
	}
	for _, c := range []struct {
		name  string
		spans []Span
		want  string
	}{
		{"everything", []Span{of(6, 1, 79, "a"), of(6, 80, 65535, "a"), of(17, 1, 65535, "a"), of(132, 1, 65535, "a"),
			of(1, 0, 0, "a")}, "everything a "},
		{"not_icmp", []Span{of(6, 1, 65535, "a"), of(17, 1, 65535, "a"), of(132, 1, 65535, "a"), of(1, 0, 0, "b")},
			"tcp a udp a sctp a icmp b "},
		{"a_port_between", []Span{of(6, 1, 79, "a"), of(6, 80, 80, "b"), of(6, 81, 65535, "a")}, "tcp/1-79 a tcp/80 b tcp/81-65535 a "},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			for _, s := range merge(c.spans) {
				got += fmt.Sprint(s.Ports, " ", s.Reach, " ")
			}
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
