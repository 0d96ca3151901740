package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weave-npc/weave-npc/npc/policy"
)

// flows are some of 64.
type flows uint64

func setsOfFlows() policy.Sets[flows] {
	return policy.Sets[flows]{
		None:    func() flows { return 0 },
		IsEmpty: func(f flows) bool { return f == 0 },
		With:    func(f, of, and flows) flows { return f | of&and },
		Less:    func(f, of flows) flows { return f &^ of },
	}
}

// rule is a rule that matches some flows, and may match others.
type rule struct {
	name         string
	action       policy.Action
	matches, may flows
}

type applied = policy.Applied[*rule]

// askFit asks about one flow, and returns the causes of what is decided and may be decided, or the names of rules.
func askFit(of *applied, exempt bool, flow int) (out []string) {
	q := policy.Question[policy.Fit, *rule]{Sets: policy.Fits(), Exempt: exempt,
		Action: func(r *rule) policy.Action { return r.action },
		Matches: func(r *rule) policy.Fit {
			return policy.Fit(r.matches>>flow&1)*policy.Always | policy.Fit((r.may&^r.matches)>>flow&1)*policy.Maybe
		},
		Decide: func(d policy.Decision[*rule], is, matched policy.Fit) {
			if min(is, matched) == policy.Never {
				out = append(out, "nothing")
			}
			if d.Action != policy.Pass {
				out = append(out, text(d))
			}
		}}
	q.Ask(of, policy.Always)
	return out
}

func text(d policy.Decision[*rule]) string {
	switch d.Cause {
	case policy.ByRule:
		return fmt.Sprint(d.Action, " by ", d.Rule.name)
	case policy.Exempt:
		return fmt.Sprint(d.Action, ": exempt")
	case policy.NoRule:
		return fmt.Sprint(d.Action, ": no rule")
	}
	return fmt.Sprint(d.Action, ": not isolated")
}

// parse returns rules that are written as "Deny a", with "no " before one that does not match and "may " before one of
// which that is not known.
func parse(t *testing.T, rules string) (out []*rule) {
	t.Helper()
	for text := range strings.SplitSeq(rules, ", ") {
		if text == "" {
			continue
		}
		r := &rule{matches: 1}
		if rest, is := strings.CutPrefix(text, "no "); is {
			text, r.matches = rest, 0
		} else if rest, is := strings.CutPrefix(text, "may "); is {
			text, r.matches, r.may = rest, 0, 1
		}
		action, name, _ := strings.Cut(text, " ")
		r.name, r.action = name, policy.Action(slices.Index([]string{"Accept", "Deny", "Pass"}, action))
		out = append(out, r)
	}
	return out
}

// TestTheOrderOfTiers shows what decides about a flow.
func TestTheOrderOfTiers(t *testing.T) {
	const deny = "Deny b"
	for _, c := range []struct {
		name                      string
		admin, allowing, baseline string
		isolated                  policy.Fit
		exempt                    bool
		want                      string
	}{
		{"no policy", "", "", "", policy.Never, false, "Accept: not isolated"},
		{"isolated", "", "", "", policy.Always, false, "Deny: no rule"},
		{"a rule allows", "", "no Accept x, Accept y", "", policy.Always, false, "Accept by y"},
		{"the first of a tier decides", "no Deny x, Accept a, Deny y", "", deny, policy.Always, false, "Accept by a"},
		{"Admin before NetworkPolicies", "Deny a", "Accept x", "", policy.Always, false, "Deny by a"},
		{"Admin accepts what nothing allows", "Accept a", "", "", policy.Always, false, "Accept by a"},
		{"Baseline", "", "", deny, policy.Never, false, "Deny by b"},
		{"NetworkPolicies before Baseline", "", "", "Accept b", policy.Always, false, "Deny: no rule"},
		{"rules of NetworkPolicies that isolate nobody", "", "Accept x", deny, policy.Never, false, "Deny by b"},
		{"Pass skips its tier", "Pass p, Accept x", "", "", policy.Always, false, "Deny: no rule"},
		{"Pass of Baseline", "Pass p", "", "Pass q, Deny b", policy.Never, false, "Accept: not isolated"},
		{"exempt", "", "", "", policy.Always, true, "Accept: exempt"},
		{"exempt, but not from tiers", "Deny a", "", "", policy.Always, true, "Deny by a"},
		{"exempt, but not from Baseline", "", "", deny, policy.Never, true, "Deny by b"},
		{"not known who isolates", "", "", deny, policy.Maybe, false, "Deny: no rule; Deny by b"},
		{"not known which matches", "may Accept x, Deny y", "", deny, policy.Never, false, "Accept by x; Deny by y"},
		{"not known what passes", "may Pass x, Deny y", "Accept z", "", policy.Always, false, "Deny by y; Accept by z"},
	} {
		of := applied{Allowing: parse(t, c.allowing), Isolated: c.isolated}
		of.Tiers[policy.Admin], of.Tiers[policy.Baseline] = parse(t, c.admin), parse(t, c.baseline)
		if got := strings.Join(askFit(&of, c.exempt, 0), "; "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func drawRules(t *rapid.T, label string, actions int, may bool) []*rule {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *rule {
		r := &rule{name: rapid.StringMatching("[a-z]{6}").Draw(t, "name"),
			action:  policy.Action(rapid.IntRange(0, actions-1).Draw(t, "action")),
			matches: flows(rapid.Uint64().Draw(t, "matches"))}
		if may {
			r.may = flows(rapid.Uint64().Draw(t, "may"))
		}
		return r
	}), 0, 4).Draw(t, label)
}

func drawApplied(t *rapid.T, may bool) *applied {
	of := &applied{Allowing: drawRules(t, "allowing", 1, may), Isolated: policy.FitOf(rapid.Bool().Draw(t, "isolated"))}
	for _, tier := range policy.Tiers {
		of.Tiers[tier] = drawRules(t, tier.String(), 3, may)
	}
	if may && rapid.Bool().Draw(t, "may be isolated") {
		of.Isolated = policy.Maybe
	}
	return of
}

// TestSetsOfFlowsAreDecidedAsEachFlow is.
func TestSetsOfFlowsAreDecidedAsEachFlow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of, exempt := drawApplied(t, false), rapid.Bool().Draw(t, "exempt")
		var found [64][]string
		q := policy.Question[flows, *rule]{Sets: setsOfFlows(), Exempt: exempt,
			Action:  func(r *rule) policy.Action { return r.action },
			Matches: func(r *rule) flows { return r.matches },
			Decide: func(d policy.Decision[*rule], of, matched flows) {
				for flow := range found {
					if of&matched>>flow&1 == 1 && d.Action != policy.Pass {
						found[flow] = append(found[flow], text(d))
					}
				}
			}}
		q.Ask(of, ^flows(0))
		for flow, got := range found {
			if want := askFit(of, exempt, flow); len(want) != 1 || !slices.Equal(got, want) {
				t.Fatalf("flow %d: %v, alone %v", flow, got, want)
			}
		}
	})
}

// TestWhatMayBeDecided is what is decided if each rule that may match does or does not, and NetworkPolicies isolate the
// pod or do not, where that is not known.
func TestWhatMayBeDecided(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of, exempt := drawApplied(t, true), rapid.Bool().Draw(t, "exempt")
		got, want := map[string]bool{}, map[string]bool{}
		for _, text := range askFit(of, exempt, 0) {
			got[text] = true
		}
		var open []*rule
		for _, rules := range [][]*rule{of.Tiers[policy.Admin], of.Allowing, of.Tiers[policy.Baseline]} {
			for _, r := range rules {
				if r.may&^r.matches&1 == 1 {
					open = append(open, r)
				}
			}
		}
		was := of.Isolated
		for choice := range 1 << (len(open) + 1) {
			for i, r := range open {
				r.may, r.matches = 0, flows(choice>>i&1)
			}
			if was == policy.Maybe {
				of.Isolated = policy.FitOf(choice>>len(open) == 1)
			}
			for _, text := range askFit(of, exempt, 0) {
				want[text] = true
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
