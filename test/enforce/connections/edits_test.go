package connections

import (
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

func TestS62_EditsCutNothingAndOpenNothing(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Rich())
		w.Expect(t, e2e.RichWants())
		load := w.Load(t, "db>web udp 53", "out>web icmp", "web>mon udp 53", "web>copy icmp", "api>db udp 53",
			"-mon>web udp 53", "-mon>web tcp 80", "-web>out udp 53", "-copy>web icmp", "-db>copy tcp 80",
			"-api>mon udp 53")
		for i := range 12 {
			o := w.Objects(e2e.Rich())
			if i%3 != 2 {
				e2e.Churn(i)(w, o)
			}
			w.Apply(t, o)
		}
		load.Stop(t)
	})
}
