package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/lab"
)

// Conflict is the log line about an address that something contradicts.
const Conflict = "conflict about an address"

// Case is a promise as a sequence of states of the cluster. It begins with Base.
type Case struct {
	Name  string
	Steps []Step
	// Says matches the warnings and errors that weave-npc logs meanwhile, as regular expressions.
	Says []string
}

// Step is a change and what holds after it.
type Step struct {
	About string
	Do    Change
	// Want is a matrix in the grammar of type Wants.
	Want Wants
	// Then checks what a matrix cannot express.
	Then func(t *testing.T, w *Cluster)
}

// RunPolicies runs cases, one after the other, in a network for each backend and attachment: what a case leaves behind
// disturbs the next one. Both families are asked at once. Each network has its own cases, for steps share variables.
func RunPolicies(t *testing.T, cases func() []Case) {
	t.Helper()
	t.Parallel()
	for _, setup := range []struct {
		name    string
		backend lab.Backend
		attach  lab.Attach
		names   string
	}{
		{"nft", lab.NFT, lab.Bridge, `.`},
		{"legacy", lab.Legacy, lab.Bridge, `.`},
		{"legacy-routed", lab.Legacy, lab.Routed, `^S(1|2|9|11|16|22|27|36|38|44|45|5.|60|69|80|84|86|9[0-2])_`},
	} {
		t.Run(setup.name, func(t *testing.T) {
			t.Parallel()
			w := New(t, setup.backend, lab.Config{Attach: setup.attach})
			m := NewManifests(t, w)
			w.Source = m
			m.Write(t, w.BaseObjects())
			w.StartDaemons(t, "--manifests", m.Dir)
			w.RunCases(t, cases(), setup.names)
		})
	}
}

// BaseObjects returns the objects that every case begins with.
func (w *Cluster) BaseObjects() *Objects {
	return w.Objects(Base())
}

// Run applies the steps of the case, and expects of each what it wants.
func (c Case) Run(t *testing.T, w *Cluster) {
	for _, d := range w.Daemons {
		for _, pattern := range c.Says {
			d.Log.Expect(pattern)
		}
	}
	o := w.BaseObjects()
	for i, s := range c.Steps {
		t.Log(strings.TrimRight(fmt.Sprintf("step %d: %s", i+1, s.About), ": "))
		if s.Do != nil {
			s.Do(w, o)
		}
		w.Apply(t, o)
		if s.Want != nil {
			w.Expect(t, s.Want)
			w.ExplainAll(t, o, w.Questions(t, s.Want))
		}
		if s.Then != nil {
			s.Then(t, w)
		}
	}
	for _, d := range w.Daemons {
		d.CheckLog(t)
	}
}

// RunCases runs the cases whose names match.
func (w *Cluster) RunCases(t *testing.T, cases []Case, names string) {
	t.Helper()
	wanted := regexp.MustCompile(names)
	for _, c := range cases {
		if wanted.MatchString(c.Name) {
			t.Run(c.Name, func(t *testing.T) { c.Run(t, w) })
		}
	}
}

// Specs of policies that several cases use.
const (
	CloseWeb = `{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress]}`
	CloseAll = `{podSelector: {}, policyTypes: [Ingress, Egress]}`
	DBToWeb  = `{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: db}}}]}]}`
)
