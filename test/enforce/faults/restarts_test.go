package faults

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

func TestS63_KilledAndStartedAgainTenTimes(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Rich())
		w.Expect(t, e2e.RichWants())
		load := w.Load(t, "db>web udp 53", "out>web icmp", "web>mon udp 53", "web>copy icmp", "api>db udp 53",
			"copy>mon udp 53",
			"-mon>web udp 53", "-mon>web tcp 80", "-web>out udp 53", "-copy>web icmp", "-db>copy tcp 80",
			"-api>mon udp 53")
		for i := range 10 {
			o := w.Objects(e2e.Rich())
			for range i % 3 {
				e2e.Churn(i)(w, o)
			}
			w.Source.Write(t, o)
			time.Sleep(rand.N(150 * time.Millisecond))
			for _, d := range w.Daemons {
				d.Kill(t)
			}
			time.Sleep(rand.N(50 * time.Millisecond))
			for _, d := range w.Daemons {
				d.Start(t)
			}
			if i%2 == 0 {
				for _, d := range w.Daemons {
					d.AwaitReady(t)
				}
			}
		}
		for _, d := range w.Daemons {
			d.AwaitReady(t)
		}
		if n := load.Stop(t); n < 1000 {
			t.Errorf("only %d flows were opened", n)
		}
		w.Apply(t, w.Objects(e2e.Rich()))
		w.Expect(t, e2e.RichWants())
	})
}
