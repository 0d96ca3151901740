package enforce

import (
	"slices"
	"testing"

	"github.com/weave-npc/weave-npc/test/lab"
)

// testCase is a promise as a sequence of states of the cluster. It begins with base.
type testCase struct {
	name  string
	steps []step
	// says are complaints of weave-npc that belong to it, as regular expressions.
	says []string
}

// step is a change and what holds after it.
type step struct {
	about string
	do    change
	want  wants
	// then is what else holds.
	then func(t *testing.T, w *world)
}

func cases() []testCase {
	return slices.Concat(isolationCases(), peerCases())
}

// TestPolicies runs all cases, one after the other, in a world for each way to enforce policies: what a case leaves behind
// is the next one's trouble.
func TestPolicies(t *testing.T) {
	for _, way := range []struct {
		name    string
		backend lab.Backend
		attach  lab.Attach
	}{
		{"nft", lab.NFT, lab.Bridge},
		{"legacy", lab.Legacy, lab.Bridge},
		{"nft-routed", lab.NFT, lab.Routed},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, way.backend, lab.Config{Attach: way.attach})
			m := newManifests(t, w)
			w.source = m
			m.write(t, w.baseObjects())
			w.startDaemons(t, "--manifests", m.dir)
			for _, c := range cases() {
				t.Run(c.name, func(t *testing.T) { c.run(t, w) })
			}
		})
	}
}

// baseObjects are the objects that every case begins with.
func (w *world) baseObjects() *objects {
	o := (&objects{}).clone()
	if o.policies == nil {
		o.policies = map[string]string{}
	}
	base()(w, o)
	return o
}

func (c testCase) run(t *testing.T, w *world) {
	for _, d := range w.daemons {
		for _, pattern := range c.says {
			d.log.expect(pattern)
		}
	}
	o := w.baseObjects()
	for i, s := range c.steps {
		t.Logf("step %d: %s", i+1, s.about)
		if s.do != nil {
			s.do(w, o)
		}
		w.apply(t, o)
		if s.want != nil {
			w.expect(t, s.want)
		}
		if s.then != nil {
			s.then(t, w)
		}
	}
	for _, d := range w.daemons {
		d.checkLog(t)
	}
}
