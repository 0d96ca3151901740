package enforce

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/lab"
)

// testCase is a promise as a sequence of states of the cluster. It begins with base.
type testCase struct {
	name  string
	steps []step
	// says matches the warnings and errors that weave-npc logs meanwhile, as regular expressions.
	says []string
}

// step is a change and what holds after it.
type step struct {
	about string
	do    change
	// want is a matrix in the grammar of type wants.
	want wants
	// then checks what a matrix cannot express.
	then func(t *testing.T, w *harness)
}

func cases() []testCase {
	return slices.Concat(isolationCases(), combinedCases(), peerCases(), changeCases(), blockCases(), portCases(), serviceCases(),
		connectionCases(), wireCases(), timeCases(), arrivalCases(), addressCases(), tierOrderCases(), subjectCases(), tierPeerCases(), protocolCases(),
		tierWireCases(), ownNodeTierCases())
}

// TestPolicies runs the cases, one after the other, in a network for each backend and attachment: what a case leaves
// behind disturbs the next one. Both families are asked at once.
func TestPolicies(t *testing.T) {
	t.Parallel()
	for _, setup := range []struct {
		name    string
		backend lab.Backend
		attach  lab.Attach
		cases   string
	}{
		{"nft", lab.NFT, lab.Bridge, `.`},
		{"legacy", lab.Legacy, lab.Bridge, `.`},
		{"legacy-routed", lab.Legacy, lab.Routed, `^S(1|2|9|11|16|22|27|36|38|44|45|5.|60|69|80|84|86|9[0-2])_`},
	} {
		t.Run(setup.name, func(t *testing.T) {
			t.Parallel()
			w := newHarness(t, setup.backend, lab.Config{Attach: setup.attach})
			m := newManifests(t, w)
			w.source = m
			m.write(t, w.baseObjects())
			w.startDaemons(t, "--manifests", m.dir)
			w.runCases(t, setup.cases)
		})
	}
}

// baseObjects returns the objects that every case begins with.
func (w *harness) baseObjects() *objects {
	return w.objects(base())
}

func (c testCase) run(t *testing.T, w *harness) {
	for _, d := range w.daemons {
		for _, pattern := range c.says {
			d.log.expect(pattern)
		}
	}
	o := w.baseObjects()
	for i, s := range c.steps {
		t.Log(strings.TrimRight(fmt.Sprintf("step %d: %s", i+1, s.about), ": "))
		if s.do != nil {
			s.do(w, o)
		}
		w.apply(t, o)
		if s.want != nil {
			w.expect(t, s.want)
			w.explainAll(t, o, w.questions(t, s.want))
		}
		if s.then != nil {
			s.then(t, w)
		}
	}
	for _, d := range w.daemons {
		d.checkLog(t)
	}
}

// runCases runs the cases whose names match.
func (w *harness) runCases(t *testing.T, names string) {
	wanted := regexp.MustCompile(names)
	for _, c := range cases() {
		if wanted.MatchString(c.name) {
			t.Run(c.name, func(t *testing.T) { c.run(t, w) })
		}
	}
}
