package random

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/weave-npc/weave-npc/test/enforce/e2e"
	"github.com/weave-npc/weave-npc/test/lab"
)

// TestRandomStates compares what arrives with the reference model's verdicts, in one random state of the cluster after
// the other. A seed in $WEAVE_NPC_TEST_SEED repeats a run, $WEAVE_NPC_TEST_STEPS makes it longer, and
// $WEAVE_NPC_TEST_TIERS=no leaves out cluster network policies.
func TestRandomStates(t *testing.T) {
	e2e.EachBackend(t, func(t *testing.T, backend lab.Backend) {
		w := e2e.Start(t, backend, e2e.Base())
		g, seed, steps := New(t, w, 12)
		g.DrawTiers()
		for i := range steps {
			g.Begin()
			down := g.IntN(6) == 0
			if down {
				g.Note("while weave-npc is down:")
				for _, d := range w.Daemons {
					d.Kill(t)
				}
			}
			g.Changes(t)
			if down {
				w.Source.Write(t, g.Objects)
				for _, d := range w.Daemons {
					d.Start(t)
				}
			}
			text, err := g.Objects.Manifest()
			if err != nil {
				t.Fatal(err)
			}
			w.Apply(t, g.Objects)
			if !t.Run(fmt.Sprintf("step_%d", i), func(t *testing.T) {
				t.Log(strings.Join(g.Did, "\n"))
				g.cells += Compare(t, w, g.Objects)
			}) {
				t.Fatalf("seed %d, step %d:\n%s", seed, i, text)
			}
		}
		t.Logf("%d states, %d packets", steps, g.cells)
		startOver(t, w)
		w.Apply(t, w.Objects(e2e.Do(e2e.Base(), finished)))
		w.Apply(t, w.Objects(e2e.Do(e2e.Base(), e2e.Without("shop", "ops"))))
		w.AwaitBare(t)
	})
}

// startOver removes all that weave-npc owns and starts it again: the nodes must get what they had, whatever happened
// before.
func startOver(t *testing.T, w *e2e.Cluster) {
	t.Helper()
	for _, d := range w.Daemons {
		before := sorted(e2e.AwaitSteady(t, d.Node))
		d.Kill(t)
		if _, stderr, status := e2e.Execute(t, d.Node, nil, "cleanup"); status != 0 {
			t.Fatalf("cleanup ends with %d\n%s", status, stderr)
		}
		d.Start(t)
		d.AwaitReady(t)
		if diff := cmp.Diff(before, sorted(e2e.Snapshot(t, d.Node))); diff != "" {
			t.Errorf("%s started over, and has something else (-before +now):\n%s", d.Node, diff)
		}
	}
}

// sorted returns a snapshot's lines: the rules that allow have no order among them. It leaves out the chain in which
// connections end, which is there once one had to end, and the sources of ports, which stay bound when the objects of
// their pods have lost the addresses.
func sorted(text string) []string {
	text, _, _ = strings.Cut(text, "# nft list ruleset bridge")
	lines := slices.DeleteFunc(strings.Split(text, "\n"),
		func(line string) bool { return strings.Contains(line, "WEAVE-NPC-TERMINATE") })
	slices.Sort(lines)
	return lines
}

// finished ends all pods, so that none vanishes while it may still run.
func finished(w *e2e.Cluster, o *e2e.Objects) {
	for name := range o.Pods {
		e2e.Pod(name, e2e.Phase(corev1.PodSucceeded))(w, o)
	}
}
