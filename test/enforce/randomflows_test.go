package enforce

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// TestS62_S63_RandomEditsCutNothingAndOpenNothing opens flows that both versions allow, and flows that both deny in the
// same direction, while policies are edited and weave-npc is killed now and then.
func TestS62_S63_RandomEditsCutNothingAndOpenNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := start(t, backend, base())
		g, seed, steps := newGenerator(t, w, 8)
		g.drawTiers()
		for range 3 {
			g.edit()
		}
		w.apply(t, g.objects)
		for i := range steps {
			before := g.objects.evaluated(t, w)
			g.begin()
			g.edit() // of two, one might be seen before the other
			flows := w.stable(g, before, g.objects.evaluated(t, w))
			load := w.open(t, flows)
			time.Sleep(30 * time.Millisecond)
			w.source.write(t, g.objects)
			if g.IntN(3) == 0 {
				g.note("killed")
				time.Sleep(time.Duration(g.IntN(120)) * time.Millisecond)
				for _, d := range w.daemons {
					d.kill(t)
					d.start(t)
				}
				for _, d := range w.daemons {
					d.awaitReady(t)
				}
			}
			time.Sleep(300 * time.Millisecond)
			if load.stop(t); t.Failed() {
				t.Fatalf("seed %d, step %d:\n%s\n%v", seed, i, strings.Join(g.did, "\n"), flows)
			}
			w.apply(t, g.objects)
		}
	})
}

// stable selects flows whose verdicts are the same before and after.
func (w *harness) stable(g *generator, before, after refmodel.State) []loadFlow {
	var allowed, denied []loadFlow
	for from, source := range w.hosts {
		for to, destination := range w.hosts {
			if w.undecided(from, to) {
				continue
			}
			for _, l := range []loadFlow{{proto: "udp", port: 53}, {proto: "icmp"}} {
				families(func(family int) {
					l.from, l.to, l.family = from, to, family
					p := packetOf(source.Addr(family), destination.Addr(family), l.proto, l.port)
					var out, in [2]bool
					out[0], in[0] = before.Evaluate(refmodel.Everywhere, p)
					out[1], in[1] = after.Evaluate(refmodel.Everywhere, p)
					switch neither := [2]bool{}; {
					case out == neither || in == neither:
						l.denied = true
						denied = append(denied, l)
					case out[0] && out[1] && in[0] && in[1]:
						l.denied = false
						allowed = append(allowed, l)
					}
				})
			}
		}
	}
	some := func(l []loadFlow) []loadFlow {
		slices.SortFunc(l, func(a, b loadFlow) int { return strings.Compare(a.String(), b.String()) })
		g.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
		return l[:min(len(l), 20)]
	}
	return append(some(allowed), some(denied)...)
}

// TestS93_RandomRelabelsOpenNothing relabels, replaces and ends pods and relabels namespaces to and fro, under random
// policies of all tiers, while new connections are opened that both states deny in the same direction.
func TestS93_RandomRelabelsOpenNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := startSlow(t, backend)
		g, seed, steps := newGenerator(t, w, 8)
		g.drawTiers()
		for i := range steps {
			for range 4 {
				g.edit()
			}
			w.apply(t, g.objects)
			before := g.objects.clone()
			g.begin()
			g.relabelOrReplace()
			flows := w.streamed(before.evaluated(t, w), g.objects.evaluated(t, w), false)
			if len(flows) == 0 {
				continue
			}
			stream, err := lab.NewStream(streamRate, flows)
			if err != nil {
				t.Fatal(err)
			}
			for range 5 {
				for _, o := range []*objects{g.objects, before} {
					w.source.write(t, o)
					time.Sleep(time.Duration(20+g.IntN(80)) * time.Millisecond)
				}
			}
			w.apply(t, g.objects)
			if w.finish(t, stream, flows); t.Failed() {
				text, _ := g.objects.manifest()
				t.Fatalf("seed %d, step %d:\n%s\n%s", seed, i, strings.Join(g.did, "\n"), text)
			}
		}
	})
}

// relabelOrReplace makes one change of one object other than a policy.
func (g *generator) relabelOrReplace() {
	name := g.onePod()
	if g.IntN(4) == 0 {
		g.replace(name)
		return
	}
	g.relabel(name)
}

// onePod selects a pod that has a network of its own.
func (g *generator) onePod() string {
	pods := slices.DeleteFunc(slices.Sorted(maps.Keys(g.objects.pods)), func(name string) bool { return ownName(name) == agent })
	return pods[g.IntN(len(pods))]
}
