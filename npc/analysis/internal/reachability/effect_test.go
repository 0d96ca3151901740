package reachability

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/test/fixture"
	"github.com/weave-npc/weave-npc/test/nightly"
	"github.com/weave-npc/weave-npc/test/random"
)

func effects(before, after *cluster.Cluster, intended flow.Flow) Effect {
	return Effects(before.View(), after.View(), intended)
}

// counted returns the effect of a change, pair by pair and port by port.
func counted(t *testing.T, before, after *cluster.Cluster, intended flow.Flow) (opens, closes int) {
	t.Helper()
	services := []flow.Service{{Protocol: 1}, {Protocol: 6, Port: 101}}
	for _, protocol := range []uint8{6, 17, 132} {
		for _, port := range []uint16{1, 80, 81, 82, 443, 444, 445, 8080, 8081, 8082} { // where a port or a range begins or has ended
			services = append(services, flow.Service{Protocol: protocol, Port: port})
		}
	}
	pods := before.View().PodNames("")
	for _, from := range pods {
		for _, to := range pods {
			if from == to {
				continue
			}
			opened, closed := false, false
			for _, s := range services {
				if from == intended.From.Pod && to == intended.To.Pod && s == intended.Service {
					continue
				}
				for _, f := range flow.Between(before.View().OwnedEnds(from), before.View().OwnedEnds(to), s) {
					was, is := explain.Explain(before.View(), f).Allowed, explain.Explain(after.View(), f).Allowed
					opened, closed = opened || is && !was, closed || was && !is
				}
			}
			if opened {
				opens++
			}
			if closed {
				closes++
			}
		}
	}
	return opens, closes
}

// TestEffectsAreCounted compares what a change opens and closes with what explain answers about every pair and port.
func TestEffectsAreCounted(t *testing.T) {
	changed, changes := 0, nightly.Times(20, 60)
	for seed := range uint64(changes) {
		r := rand.New(rand.NewPCG(seed, 2))
		before := random.Cluster(t, r)
		after := before.Clone()
		pods := before.View().PodNames("")
		intended := flow.Flow{From: flow.End{Pod: random.Pick(r, pods...)}, To: flow.End{Pod: random.Pick(r, pods...)},
			Service: flow.Service{Protocol: 6, Port: 80}}
		if r.IntN(2) == 0 {
			after.SetPolicy(fixture.Policy(t, random.Pick(r, "a", "b", "c")+"/new", random.Spec(r)))
		} else {
			p := *before.View().Pods[random.Pick(r, pods...)]
			p.Labels = map[string]string{"app": random.Pick(r, "web", "db"), "tier": random.Pick(r, "1", "2")}
			after.SetPod(p)
		}
		opens, closes := counted(t, before, after, intended)
		if opens+closes > 0 {
			changed++
		}
		if got := effects(before, after, intended); got.Opens != opens || got.Closes != closes {
			t.Errorf("seed %d: %s, not %d and %d", seed, got, opens, closes)
		}
	}
	if changed < changes/3 {
		t.Errorf("only %d changes opened or closed anything", changed)
	}
}

// TestEffectsOutside shows that effects on addresses of no pod are reported separately.
func TestEffectsOutside(t *testing.T) {
	harness := func(specs ...string) *cluster.Cluster {
		w := cluster.New()
		w.SetPod(fixture.Pod("a/web 10.32.0.1"))
		w.SetPolicy(fixture.Policy(t, "a/deny", `{podSelector: {}, policyTypes: [Ingress, Egress]}`))
		for i, spec := range specs {
			w.SetPolicy(fixture.Policy(t, fmt.Sprintf("a/p%d", i), spec))
		}
		return w
	}
	intended := flow.Flow{From: flow.End{Addr: netip.MustParseAddr("192.0.2.1")}, To: flow.End{Pod: "a/web"},
		Service: flow.Service{Protocol: 6, Port: 80}}
	for spec, want := range map[string]string{
		`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.1/32}}], ports: [{port: 80}]}]}`: "also opens 0, closes 0 pairs of pods",
		`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.1/32}}]}]}`: "also opens 0, closes 0 pairs of pods; " +
			"opens pods to or from addresses outside",
		`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: 80}]}]}`: "also opens 0, closes 0 pairs of pods; " +
			"opens pods to or from addresses outside",
		`{podSelector: {}, ingress: [{ports: [{port: 80}]}]}`: "also opens 0, closes 0 pairs of pods; opens pods to or from addresses outside",
	} {
		if got := effects(harness(), harness(spec), intended).String(); got != want {
			t.Errorf("%s: %s,\nnot %s", spec, got, want)
		}
	}
	if got := effects(harness(`{podSelector: {}, ingress: [{}]}`), harness(), intended); !got.ClosesOutside || got.OpensOutside {
		t.Errorf("a policy was deleted: %s", got)
	}
}
