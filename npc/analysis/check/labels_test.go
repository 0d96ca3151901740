package check

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
)

// TestCombinationsStandForAllLabels compares the sets of selectors that combinations match with those that any labels
// match.
func TestCombinationsStandForAllLabels(t *testing.T) {
	requirements := []string{"app=web", "app!=web", "app in (web,db)", "app notin (db)", "app", "!app", "tier=1", "tier!=1", "!tier", "env in (a,b)", "env"}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		var selectors []labels.Selector
		for range r.IntN(6) {
			var all []string
			for range 1 + r.IntN(3) {
				all = append(all, requirements[r.IntN(len(requirements))])
			}
			s, err := labels.Parse(strings.Join(all, ","))
			if err != nil {
				t.Fatal(err)
			}
			selectors = append(selectors, s)
		}
		matched := func(l map[string]string) (text string) {
			for _, s := range selectors {
				text += fmt.Sprint(s.Matches(labels.Set(l)), " ")
			}
			return text
		}
		found, ok := combinations(selectors)
		if !ok {
			t.Fatal("there are too many")
		}
		got := map[string]bool{}
		for _, l := range found {
			if got[matched(l)] {
				t.Errorf("seed %d: %v matches what another one does", seed, l)
			}
			got[matched(l)] = true
		}
		want := map[string]bool{}
		for _, app := range []string{"", "web", "db", "x"} {
			for _, tier := range []string{"", "1", "x"} {
				for _, env := range []string{"", "a", "b", "x"} {
					l := map[string]string{}
					for key, value := range map[string]string{"app": app, "tier": tier, "env": env} {
						if value != "" {
							l[key] = value
						}
					}
					want[matched(l)] = true
				}
			}
		}
		if len(got) != len(want) {
			t.Errorf("seed %d: %d sets of selectors, not %d", seed, len(got), len(want))
		}
		for text := range want {
			if !got[text] {
				t.Errorf("seed %d: no labels for %s", seed, text)
			}
		}
	}
}

// TestTooManyCombinations shows that there is an end.
func TestTooManyCombinations(t *testing.T) {
	var selectors []labels.Selector
	for i := range 16 {
		selectors = append(selectors, labels.SelectorFromSet(labels.Set{fmt.Sprint("key", i): "x"}))
	}
	if all, ok := combinations(selectors); ok {
		t.Errorf("there are %d combinations", len(all))
	}
	if all, ok := combinations(selectors[:10]); !ok || len(all) != 1024 {
		t.Errorf("there are %d combinations of ten", len(all))
	}
}
