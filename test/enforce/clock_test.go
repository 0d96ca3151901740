package enforce

import (
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/lab"
)

// TestAClockThatJumpsHarmsNothing sets weave-npc's wall clock years ahead and back, while the cluster changes under
// load.
func TestAClockThatJumpsHarmsNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := newHarness(t, backend, lab.Config{})
		m := w.fromManifests(t, ailing())
		clocks := make([]*lab.Clock, len(w.Nodes()))
		for i, n := range w.Nodes() {
			d := newDaemon(n, w.daemonArgs(i, "--manifests", m.dir)...)
			d.startBy(t, func(cmd *lab.Cmd) (err error) {
				clocks[i], err = cmd.StartWithClock()
				return err
			})
			d.endWith(t)
			w.daemons = append(w.daemons, d)
		}
		for _, d := range w.daemons {
			d.awaitReady(t)
		}
		stream := w.stream(t)
		const year = 365 * 24 * time.Hour
		for i, wrong := range []time.Duration{20 * time.Minute, -20 * time.Minute, 10 * year, -10 * year, 0} {
			for _, c := range clocks {
				c.Set(wrong)
			}
			state := do(ailing(), policy("ops/p", `{podSelector: {matchLabels: {app: mon}}, ingress: [{ports: [{port: 81}]}]}`))
			if i%2 == 1 {
				state = do(ailing(), pod("ops/mon", labelled("app=api")))
			}
			w.apply(t, w.objects(state))
			w.compare(t, w.objects(state))
		}
		w.endStream(t, stream)
		// For ten minutes by the monotonic clock, the address of a deleted isolated pod is closed.
		w.apply(t, w.objects(do(ailing(), without("shop/web"))))
		for _, wrong := range []time.Duration{0, time.Hour, -time.Hour} {
			for _, c := range clocks {
				c.Set(wrong)
			}
			time.Sleep(watched)
			w.probe(t, "mon", lab.Packet{Proto: "tcp", To: w.hosts["web"].Addr4(), Port: 80}, lab.Dropped)
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
