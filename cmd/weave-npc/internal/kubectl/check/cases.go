package check

import (
	"io"
	"strconv"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/output/findings"
	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/analysis/check"
	"github.com/weave-npc/weave-npc/npc/analysis/check/expectation"
	npccluster "github.com/weave-npc/weave-npc/npc/cluster"
)

// page is the page of the documentation about expectations.
const page = "docs/check.md"

// The rules that findings about expectations that do not hold refer to.
const (
	ruleBroken   = "expectation-broken"
	ruleEmpty    = "expectation-about-nothing"
	ruleUnproved = "expectation-not-proved"
)

// rules returns them.
func rules() []findings.RuleInfo {
	return []findings.RuleInfo{
		{ID: ruleBroken, Level: findings.Error, Doc: page + "#verbs", Short: "an expectation does not hold",
			Help: "Policies allow what never is to happen, or deny what is to be possible. " +
				"The counterexample says by which rules."},
		{ID: ruleEmpty, Level: findings.Error, Doc: page + "#verbs",
			Short: "an expectation is about nothing that exists",
			Help: "It names pods, a namespace or a port that do not exist, " +
				"so that it would hold whatever the policies are. Correct the name, or set allowEmpty."},
		{ID: ruleUnproved, Level: findings.Error, Doc: page + "#limits",
			Short: "an expectation is neither proved nor broken",
			Help:  "Policies distinguish more pods than are checked. Divide the expectation into narrower ones."},
	}
}

// tally is what was found to break expectations.
type tally struct {
	counterexamples int
	manifests       string
}

// cases checks the expectations of a file. It adds the manifests of what breaks them, and counts these.
func (t *tally) cases(v *npccluster.View, f expectation.File, stderr io.Writer) (out []findings.Case, err error) {
	p := check.New(v, check.Assumptions{PodCIDRs: f.PodCIDRs, NewNamespaces: f.NewNamespaces}, f.Expectations)
	p.Counterexamples = t.counterexamples
	defer func() { t.counterexamples = p.Counterexamples }()
	possible := false
	for i, e := range f.Expectations {
		cli.Doing(stderr, "checking expectation %d of %d of %s", i+1, len(f.Expectations), f.Path)
		r := p.Check(e)
		c := findings.Case{Name: e.Name, File: e.Path, Line: e.Line}
		possible = possible || r.PossibleFrom+r.PossibleTo > 0
		switch {
		case r.Outcome == check.Holds:
			out = append(out, c)
			continue
		case r.Outcome == check.Broken && r.Counterexample == nil:
			c.Rule = ruleEmpty
		case r.Outcome == check.Unproved:
			c.Rule = ruleUnproved
		default:
			text, err := r.Counterexample.Manifests()
			if err != nil {
				return nil, err
			}
			c.Rule, c.Detail = ruleBroken, r.Counterexample.Verdict.String()
			if text != "" {
				c.Detail += "with:\n" + text
				t.manifests += "# " + strconv.Quote(e.Name) + "\n" + text
			}
		}
		c.Outcome, c.Message = findings.Failed, r.Why
		out = append(out, c)
	}
	if possible && len(f.PodCIDRs) == 0 {
		note(stderr, "pods that could be there are taken to have addresses in %s; podCIDRs of %s can say where",
			spelling.Some(spelling.Texts(p.PodCIDRs())), f.Path)
	}
	if unasked := p.Unasked(); len(unasked) > 0 {
		note(stderr, "expectations do not count for pods that own none of their addresses: %s", spelling.Some(unasked))
	}
	return out, nil
}
