package tiers

import (
	"testing"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS62_APolicyChangesItsTierUnderLoad has a policy be one of the Baseline and of the Admin tier in turn, alone and
// alongside a NetworkPolicy, while flows are opened that both versions allow, or deny.
func TestS62_APolicyChangesItsTierUnderLoad(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Base())
		rules := `egress: [{action: Deny, to: [` + e2e.DBAlone + `]}, {action: Accept, to: [` + e2e.AllPods + `]}]`
		isolated := e2e.Policy("shop/api", `{podSelector: {matchLabels: {app: api}}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]}`)
		for _, alongside := range []e2e.Change{e2e.Base(), e2e.Do(e2e.Base(), isolated)} {
			lower, upper := w.Objects(e2e.Do(alongside, e2e.ClusterPolicy("a", e2e.Baseline("1", e2e.AllPods,
				rules)))), w.Objects(e2e.Do(alongside, e2e.ClusterPolicy("a", e2e.Admin("1", e2e.AllPods, rules))))
			w.Apply(t, lower)
			flows := w.Streamed(lower.Evaluated(t, w), upper.Evaluated(t, w), true)
			w.Includes(t, flows, "-web>db +web>mon +db>web")
			stream, err := lab.NewStream(e2e.StreamRate, flows)
			if err != nil {
				t.Fatal(err)
			}
			for range 5 {
				w.Apply(t, upper)
				w.Apply(t, lower)
			}
			w.Finish(t, stream, flows)
		}
	})
}
