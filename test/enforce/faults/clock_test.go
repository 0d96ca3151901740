package faults

import (
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/enforce/random"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestAClockThatJumpsHarmsNothing sets weave-npc's wall clock years ahead and back, while the cluster changes under
// load.
func TestAClockThatJumpsHarmsNothing(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.New(t, backend, lab.Config{})
		m := w.FromManifests(t, ailing())
		clocks := make([]*lab.Clock, len(w.Nodes()))
		for i, n := range w.Nodes() {
			d := e2e.NewDaemon(n, w.DaemonArgs(i, "--manifests", m.Dir)...)
			d.StartBy(t, func(cmd *lab.Cmd) (err error) {
				clocks[i], err = cmd.StartWithClock()
				return err
			})
			d.EndWith(t)
			w.Daemons = append(w.Daemons, d)
		}
		for _, d := range w.Daemons {
			d.AwaitReady(t)
		}
		stream := stream(t, w)
		const year = 365 * 24 * time.Hour
		for i, wrong := range []time.Duration{20 * time.Minute, -20 * time.Minute, 10 * year, -10 * year, 0} {
			for _, c := range clocks {
				c.Set(wrong)
			}
			state := e2e.Do(ailing(), e2e.Policy("ops/p",
				`{podSelector: {matchLabels: {app: mon}}, ingress: [{ports: [{port: 81}]}]}`))
			if i%2 == 1 {
				state = e2e.Do(ailing(), e2e.Pod("ops/mon", e2e.Labelled("app=api")))
			}
			w.Apply(t, w.Objects(state))
			random.Compare(t, w, w.Objects(state))
		}
		endStream(t, w, stream)
		// For ten minutes by the monotonic clock, the address of a deleted isolated pod is closed.
		w.Apply(t, w.Objects(e2e.Do(ailing(), e2e.Without("shop/web"))))
		for _, wrong := range []time.Duration{0, time.Hour, -time.Hour} {
			for _, c := range clocks {
				c.Set(wrong)
			}
			time.Sleep(watched)
			w.Probe(t, "mon", lab.Packet{Proto: "tcp", To: w.Hosts["web"].Addr4(), Port: 80}, lab.Dropped)
		}
		for i, c := range clocks {
			if c.Asked() == 0 {
				t.Errorf("weave-npc on %s has not looked at the clock that was set", w.Nodes()[i])
			}
		}
	})
}

// watched is longer than weave-npc waits between two looks at what time alone changes.
const watched = 1200 * time.Millisecond
