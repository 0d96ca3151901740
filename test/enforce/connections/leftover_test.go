package connections

import (
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS62_S63_WhatIsLeftOfAListHarmsNoPod kills weave-npc a moment after the only policy of a tier went, when its
// chains and sets are not removed yet, and has it find the policy again when it starts.
func TestS62_S63_WhatIsLeftOfAListHarmsNoPod(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Base())
		rules := `egress: [{action: Accept, to: [` + e2e.MonAlone +
			`]}, {action: Deny, protocols: [{udp: {destinationPort: {number: 81}}}], to: [` + e2e.AllPods + `]}]`
		without, with := w.Objects(e2e.Base()), w.Objects(e2e.Do(e2e.Base(),
			e2e.ClusterPolicy("a", e2e.Admin("1", e2e.WebAlone, rules))))
		flows := w.Streamed(without.Evaluated(t, w), with.Evaluated(t, w), true)
		w.Includes(t, flows, "+web>db +web>mon +web>out +db>web")
		for range 4 {
			w.Apply(t, without)
			stream, err := lab.NewStream(e2e.StreamRate, flows)
			if err != nil {
				t.Fatal(err)
			}
			w.Apply(t, with)
			w.Apply(t, without)
			for _, d := range w.Daemons {
				d.Kill(t)
			}
			w.Source.Write(t, with)
			time.Sleep(300 * time.Millisecond) // manifests that are younger are not read yet, and the policy would come after the start
			for _, d := range w.Daemons {
				d.Start(t)
			}
			for _, d := range w.Daemons {
				d.AwaitReady(t)
			}
			w.Finish(t, stream, flows)
		}
	})
}
