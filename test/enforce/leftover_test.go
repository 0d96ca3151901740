package enforce

import (
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS62_S63_WhatIsLeftOfAListHarmsNoPod kills weave-npc a moment after the only policy of a tier went, when its
// chains and sets are not removed yet, and has it find the policy again when it starts.
func TestS62_S63_WhatIsLeftOfAListHarmsNoPod(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, base())
		rules := `egress: [{action: Accept, to: [` + monAlone + `]}, {action: Deny, protocols: [{udp: {destinationPort: {number: 81}}}], to: [` + allPods + `]}]`
		without, with := w.objects(base()), w.objects(do(base(), clusterPolicy("a", admin("1", webAlone, rules))))
		flows := w.streamed(without.evaluated(t, w), with.evaluated(t, w), true)
		w.includes(t, flows, "+web>db +web>mon +web>out +db>web")
		for range 4 {
			w.apply(t, without)
			stream, err := lab.NewStream(streamRate, flows)
			if err != nil {
				t.Fatal(err)
			}
			w.apply(t, with)
			w.apply(t, without)
			for _, d := range w.daemons {
				d.kill(t)
			}
			w.source.write(t, with)
			time.Sleep(300 * time.Millisecond) // manifests that are younger are not read yet, and the policy would come after the start
			for _, d := range w.daemons {
				d.start(t)
			}
			for _, d := range w.daemons {
				d.awaitReady(t)
			}
			w.finish(t, stream, flows)
		}
	})
}
