package lint

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
)

// TestSelectorsWithin compares what is said about each pair of selectors with all labels that they can distinguish.
func TestSelectorsWithin(t *testing.T) {
	values := [][]string{nil, {"a"}, {"b"}, {"a", "b"}}
	var all []policy.Selector
	for _, app := range values {
		for _, op := range []metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"} {
			for _, tier := range values {
				for _, second := range []metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"} {
					for _, key := range []string{"app", "tier"} {
						s := metav1.LabelSelector{}
						for _, e := range []metav1.LabelSelectorRequirement{{Key: "app", Operator: op, Values: app}, {Key: key, Operator: second, Values: tier}} {
							if (len(e.Values) > 0) == (e.Operator == "In" || e.Operator == "NotIn") { // else it is not valid, or left out
								s.MatchExpressions = append(s.MatchExpressions, e)
							}
						}
						p := policy.Compile(&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PodSelector: s}}, quota.Default())
						if p.Invalid != nil {
							t.Fatal(p.Invalid)
						}
						all = append(all, p.Target)
					}
				}
			}
		}
	}
	seen := map[string]bool{}
	distinct := all[:0]
	for _, s := range all {
		if !seen[s.String()] {
			seen[s.String()] = true
			distinct = append(distinct, s)
		}
	}
	yes := 0
	for _, a := range distinct {
		for _, b := range distinct {
			want := true
			for _, app := range []string{"", "a", "b", "c"} {
				for _, tier := range []string{"", "a", "b", "c"} {
					labels := map[string]string{}
					if app != "" {
						labels["app"] = app
					}
					if tier != "" {
						labels["tier"] = tier
					}
					want = want && (!a.Matches(labels) || b.Matches(labels))
				}
			}
			if got := constraintsOf(a).within(constraintsOf(b)); got != want {
				t.Errorf("%q within %q: %v, want %v", a, b, got, want)
			}
			if want {
				yes++
			}
		}
	}
	if len(distinct) < 60 || yes < 500 {
		t.Errorf("%d selectors, %d pairs", len(distinct), yes)
	}
}
