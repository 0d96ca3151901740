package random

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
	"github.com/weave-npc/weave-npc/test/refmodel"
)

// TestS62_S63_RandomEditsCutNothingAndOpenNothing opens flows that both versions allow, and flows that both deny in the
// same direction, while policies are edited and weave-npc is killed now and then.
func TestS62_S63_RandomEditsCutNothingAndOpenNothing(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Base())
		g, seed, steps := New(t, w, 8)
		g.DrawTiers()
		for range 3 {
			g.Edit()
		}
		w.Apply(t, g.Objects)
		for i := range steps {
			before := g.Objects.Evaluated(t, w)
			g.Begin()
			g.Edit() // of two, one might be seen before the other
			flows := stable(w, g, before, g.Objects.Evaluated(t, w))
			load := w.Open(t, flows)
			time.Sleep(30 * time.Millisecond)
			w.Source.Write(t, g.Objects)
			if g.IntN(3) == 0 {
				g.Note("killed")
				time.Sleep(time.Duration(g.IntN(120)) * time.Millisecond)
				for _, d := range w.Daemons {
					d.Kill(t)
					d.Start(t)
				}
				for _, d := range w.Daemons {
					d.AwaitReady(t)
				}
			}
			time.Sleep(300 * time.Millisecond)
			if load.Stop(t); t.Failed() {
				t.Fatalf("seed %d, step %d:\n%s\n%v", seed, i, strings.Join(g.Did, "\n"), flows)
			}
			w.Apply(t, g.Objects)
		}
	})
}

// stable selects flows whose verdicts are the same before and after.
func stable(w *e2e.Cluster, g *Generator, before, after refmodel.State) []e2e.LoadFlow {
	var allowed, denied []e2e.LoadFlow
	for from, source := range w.Hosts {
		for to, destination := range w.Hosts {
			if w.Undecided(from, to) {
				continue
			}
			for _, l := range []e2e.LoadFlow{{Proto: "udp", Port: 53}, {Proto: "icmp"}} {
				e2e.EachFamily(func(family int) {
					l.From, l.To, l.Family = from, to, family
					p := e2e.PacketOf(source.Addr(family), destination.Addr(family), l.Proto, l.Port)
					var out, in [2]bool
					out[0], in[0] = before.Evaluate(refmodel.Everywhere, p)
					out[1], in[1] = after.Evaluate(refmodel.Everywhere, p)
					switch neither := [2]bool{}; {
					case out == neither || in == neither:
						l.Denied = true
						denied = append(denied, l)
					case out[0] && out[1] && in[0] && in[1]:
						l.Denied = false
						allowed = append(allowed, l)
					}
				})
			}
		}
	}
	some := func(l []e2e.LoadFlow) []e2e.LoadFlow {
		slices.SortFunc(l, func(a, b e2e.LoadFlow) int { return strings.Compare(a.String(), b.String()) })
		g.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
		return l[:min(len(l), 20)]
	}
	return append(some(allowed), some(denied)...)
}

// TestS93_RandomRelabelsOpenNothing relabels, replaces and ends pods and relabels namespaces to and fro, under random
// policies of all tiers, while new connections are opened that both states deny in the same direction.
func TestS93_RandomRelabelsOpenNothing(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.StartSlow(t, backend)
		g, seed, steps := New(t, w, 8)
		g.DrawTiers()
		for i := range steps {
			for range 4 {
				g.Edit()
			}
			w.Apply(t, g.Objects)
			before := g.Objects.Clone()
			g.Begin()
			g.relabelOrReplace()
			flows := w.Streamed(before.Evaluated(t, w), g.Objects.Evaluated(t, w), false)
			if len(flows) == 0 {
				continue
			}
			stream, err := lab.NewStream(e2e.StreamRate, flows)
			if err != nil {
				t.Fatal(err)
			}
			for range 5 {
				for _, o := range []*e2e.Objects{g.Objects, before} {
					w.Source.Write(t, o)
					time.Sleep(time.Duration(20+g.IntN(80)) * time.Millisecond)
				}
			}
			w.Apply(t, g.Objects)
			if w.Finish(t, stream, flows); t.Failed() {
				text, _ := g.Objects.Manifest()
				t.Fatalf("seed %d, step %d:\n%s\n%s", seed, i, strings.Join(g.Did, "\n"), text)
			}
		}
	})
}

// relabelOrReplace makes one change of one object other than a policy.
func (g *Generator) relabelOrReplace() {
	name := g.OnePod()
	if g.IntN(4) == 0 {
		g.replace(name)
		return
	}
	g.Relabel(name)
}
