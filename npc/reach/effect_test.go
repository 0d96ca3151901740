package reach

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/explain"
)

// counted is the effect of a change, pair by pair and port by port.
func counted(t *testing.T, before, after *explain.World, meant explain.Flow) (opens, closes int) {
	t.Helper()
	services := []explain.Service{{Protocol: 1}, {Protocol: 17, Port: 1}, {Protocol: 132, Port: 7}}
	for _, port := range []uint16{1, 79, 80, 81, 100, 101, 443, 444, 8079, 8080, 8081} {
		services = append(services, explain.Service{Protocol: 6, Port: port})
	}
	for _, from := range before.Pods("") {
		for _, to := range before.Pods("") {
			a, errA := before.Find(from)
			b, errB := before.Find(to)
			if from == to || errA != nil || errB != nil {
				continue
			}
			opened, closed := false, false
			for _, s := range services {
				if from == meant.From.Pod && to == meant.To.Pod && s == meant.Service {
					continue
				}
				for _, f := range explain.Flows(a, b, s) {
					was, is := before.Explain(f).Allowed, after.Explain(f).Allowed
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

// TestEffectsAreCounted compares what a change opens and closes with what explain says of every pair and port.
func TestEffectsAreCounted(t *testing.T) {
	changed := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 2))
		before := randomWorld(t, r)
		after := before.Clone()
		pods := before.Pods("")
		meant := explain.Flow{From: explain.End{Pod: pick(r, pods...)}, To: explain.End{Pod: pick(r, pods...)},
			Service: explain.Service{Protocol: 6, Port: 80}}
		if r.IntN(2) == 0 {
			setPolicy(t, after, pick(r, "a", "b", "c")+"/new", randomSpec(r))
		} else {
			p := *before.Objects().Pods[pick(r, pods...)]
			p.Labels = map[string]string{"app": pick(r, "web", "db"), "tier": pick(r, "1", "2")}
			after.SetPod(p)
		}
		opens, closes := counted(t, before, after, meant)
		if opens+closes > 0 {
			changed++
		}
		if got := Effects(before, after, meant); got.Opens != opens || got.Closes != closes {
			t.Errorf("seed %d: %s, not %d and %d", seed, got, opens, closes)
		}
	}
	if changed < 20 {
		t.Errorf("only %d changes opened or closed anything", changed)
	}
}

// TestEffectsOutside shows that what is opened to addresses that are no pod's is told apart.
func TestEffectsOutside(t *testing.T) {
	world := func(specs ...string) *explain.World {
		w := explain.NewWorld()
		w.SetPod(npc.Pod{Namespace: "a", Name: "web", Addrs: []netip.Addr{netip.MustParseAddr("10.32.0.1")}})
		setPolicy(t, w, "a/deny", `{podSelector: {}, policyTypes: [Ingress, Egress]}`)
		for i, spec := range specs {
			setPolicy(t, w, fmt.Sprintf("a/p%d", i), spec)
		}
		return w
	}
	meant := explain.Flow{From: explain.End{Addr: netip.MustParseAddr("192.0.2.1")}, To: explain.End{Pod: "a/web"},
		Service: explain.Service{Protocol: 6, Port: 80}}
	for spec, want := range map[string]string{
		`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.1/32}}], ports: [{port: 80}]}]}`: "also opens 0, closes 0 pairs of pods",
		`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.1/32}}]}]}`: "also opens 0, closes 0 pairs of pods; " +
			"opens pods to or from addresses outside",
		`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: 80}]}]}`: "also opens 0, closes 0 pairs of pods; " +
			"opens pods to or from addresses outside",
		`{podSelector: {}, ingress: [{ports: [{port: 80}]}]}`: "also opens 0, closes 0 pairs of pods; opens pods to or from addresses outside",
	} {
		if got := Effects(world(), world(spec), meant).String(); got != want {
			t.Errorf("%s: %s,\nnot %s", spec, got, want)
		}
	}
	if got := Effects(world(`{podSelector: {}, ingress: [{}]}`), world(), meant); !got.ClosesOutside || got.OpensOutside {
		t.Errorf("a policy was deleted: %s", got)
	}
}
