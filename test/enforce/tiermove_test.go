package enforce

import (
	"testing"

	"github.com/weave-npc/weave-npc/test/lab"
)

// TestS62_APolicyChangesItsTierUnderLoad has a policy be one of the Baseline and of the Admin tier in turn, alone and
// alongside a NetworkPolicy, while flows are opened that both versions allow, or deny.
func TestS62_APolicyChangesItsTierUnderLoad(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, base())
		rules := `egress: [{action: Deny, to: [` + dbAlone + `]}, {action: Accept, to: [` + allPods + `]}]`
		isolated := policy("shop/api", `{podSelector: {matchLabels: {app: api}}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]}`)
		for _, alongside := range []change{base(), do(base(), isolated)} {
			lower, upper := w.objects(do(alongside, clusterPolicy("a", baseline("1", allPods, rules)))), w.objects(do(alongside, clusterPolicy("a", admin("1", allPods, rules))))
			w.apply(t, lower)
			flows := w.streamed(lower.evaluated(t, w), upper.evaluated(t, w), true)
			w.includes(t, flows, "-web>db +web>mon +db>web")
			stream, err := lab.NewStream(streamRate, flows)
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				w.apply(t, upper)
				w.apply(t, lower)
			}
			w.finish(t, stream, flows)
		}
	})
}
