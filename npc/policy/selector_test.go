package policy

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/test/fixture"
)

// TestSelectors shows which labels selectors match, what others lack, and how selectors are written down.
func TestSelectors(t *testing.T) {
	labels := map[string]string{"app": "web", "tier": "front"}
	for _, c := range []struct {
		name, selector, text string
		matches              bool
		unmet                string // requirements, or "impossible"
		keys                 string
	}{
		{"everything", `{}`, "", true, "", ""},
		{"a label", `{matchLabels: {app: web}}`, "app=web", true, "", "app"},
		{"another value", `{matchLabels: {app: db, tier: front}}`, "app=db,tier=front", false, "app=db", "app tier"},
		{"one of several values", `{matchExpressions: [{key: app, operator: In, values: [db, web]}]}`, "app in (db,web)", true, "", "app"},
		{"none of them", `{matchExpressions: [{key: app, operator: NotIn, values: [db, web]}]}`, "app notin (db,web)", false, "app notin (db,web)", "app"},
		{"an existing label", `{matchExpressions: [{key: tier, operator: Exists}]}`, "tier", true, "", "tier"},
		{"one that must not be", `{matchExpressions: [{key: tier, operator: DoesNotExist}]}`, "!tier", false, "!tier", "tier"},
		{"a value that no label can have", `{matchLabels: {app: "no label;"}}`, "a value that no label can have", false, "impossible", ""},
		{"not such a value", `{matchExpressions: [{key: app, operator: NotIn, values: ["no label;"]}]}`, "", true, "", ""},
		{"such a value or another", `{matchExpressions: [{key: app, operator: In, values: ["no label;", web]}]}`, "app in (web)", true, "", "app"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := compileSelector(fixture.Object[metav1.LabelSelector](t, c.selector))
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Matches(labels); got != c.matches {
				t.Errorf("it matches: %t", got)
			}
			unmet, possible := s.Unmet(labels)
			var lacking []string
			for _, r := range unmet {
				lacking = append(lacking, r.String())
			}
			if !possible {
				lacking = append(lacking, "impossible")
			}
			if got := strings.Join(lacking, " "); got != c.unmet {
				t.Errorf("labels lack %q, want %q", got, c.unmet)
			}
			if got := strings.Join(s.Keys(), " "); got != c.keys {
				t.Errorf("it depends on %q, want %q", got, c.keys)
			}
			if got := s.String(); got != c.text {
				t.Errorf("it is written %q, want %q", got, c.text)
			}
		})
	}
}

// TestASelectorHasOneText shows that a selector with many requirements on the same labels, or with several errors, is
// always compiled to the same. Its text is in the names of sets, and its error is reported whenever it is another.
func TestASelectorHasOneText(t *testing.T) {
	many, bad := &metav1.LabelSelector{MatchLabels: map[string]string{}}, &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "", "c d": ""}}
	for i := range 20 {
		key := fmt.Sprintf("k%d", i)
		many.MatchLabels[key] = "x"
		for _, v := range []string{"y", "z"} {
			many.MatchExpressions = append(many.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: []string{v}})
		}
	}
	texts, said := map[string]bool{}, map[string]bool{}
	for range 50 {
		s, err := compileSelector(many)
		if err != nil {
			t.Fatal(err)
		}
		_, err = compileSelector(bad)
		texts[s.String()], said[fmt.Sprint(err)] = true, true
	}
	if len(texts) != 1 || len(said) != 1 || said["<nil>"] {
		t.Errorf("it has %d texts, and the errors %v", len(texts), said)
	}
}
