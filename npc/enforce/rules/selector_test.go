package rules

import (
	"regexp"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weave-npc/weave-npc/npc"
	compiled "github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
)

// FuzzSelectorSets makes two selectors of what it is given. Each has to match what the API says, and they may share a
// set only if they match the same.
func FuzzSelectorSets(f *testing.F) {
	f.Add("app", "web", uint8(0), "app", "db", "web", "app", "web")
	f.Add("app", "a b", uint8(1), "tier", "x", ";", "tier", "y")
	f.Add("a/b", "", uint8(2), "a,b", "", "", "a/b", "")
	f.Add("", "x", uint8(3), "x=1,y", "1", "2", "x", "1")
	ours := regexp.MustCompile(`^weave-[a-z2-7]{25}$`)
	f.Fuzz(func(t *testing.T, key, value string, op uint8, key2, value2, value3, labelKey, labelValue string) {
		e := metav1.LabelSelectorRequirement{Key: key2, Operator: []metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn,
			metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist}[op%4]}
		if op%4 < 2 {
			e.Values = []string{value2, value3}
		}
		specs := []metav1.LabelSelector{
			{MatchLabels: map[string]string{key: value}, MatchExpressions: []metav1.LabelSelectorRequirement{e}},
			{MatchLabels: map[string]string{key: value}},
			{MatchExpressions: []metav1.LabelSelectorRequirement{e}},
			{MatchLabels: map[string]string{key2: value2}},
		}
		harnesses := []map[string]string{{}, {labelKey: labelValue}, {key: value}, {key2: value2}, {key: value, key2: value3}}
		names := map[string][]bool{} // set -> what it matches
		for _, s := range specs {
			p := compiled.Compile(&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PodSelector: s}}, quota.Default())
			c, err := p.Target, p.Invalid
			if bad := !isKey(s); bad != (err != nil) {
				t.Fatalf("%v: bad key %t, but %v", s, bad, err)
			}
			if err != nil {
				continue
			}
			var matched []bool
			for _, l := range harnesses {
				if !possible(l) {
					continue
				}
				if c.Selects(labels.Set(l)) != matches(s, l) {
					t.Fatalf("%v matches %v: %t", s, l, c.Selects(labels.Set(l)))
				}
				matched = append(matched, c.Selects(labels.Set(l)))
			}
			if _, possible := c.Unmet(nil); !possible {
				continue // it gets no set
			}
			name := NewSet(SelectorSpec{Scope: NamespaceScope, Namespace: "n", Pods: c.Selector}).Name(npc.IPv4)
			if !ours.MatchString(name) {
				t.Fatalf("%v makes set %q", s, name)
			}
			if other, shared := names[name]; shared && !slices.Equal(other, matched) {
				t.Fatalf("%v shares set %s with a selector that matches something else", s, name)
			}
			names[name] = matched
		}
	})
}

// isKey reports whether all keys of a selector are label keys.
func isKey(s metav1.LabelSelector) bool {
	for k := range s.MatchLabels {
		if len(validation.IsQualifiedName(k)) > 0 {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		if len(validation.IsQualifiedName(e.Key)) > 0 {
			return false
		}
	}
	return true
}

// possible reports whether an object can have the labels.
func possible(l map[string]string) bool {
	for k, v := range l {
		if len(validation.IsQualifiedName(k)) > 0 || len(validation.IsValidLabelValue(v)) > 0 {
			return false
		}
	}
	return true
}

// matches reports whether the API's selector matches labels, by its field comments.
func matches(s metav1.LabelSelector, l map[string]string) bool {
	for k, v := range s.MatchLabels {
		if have, ok := l[k]; !ok || have != v {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		have, ok := l[e.Key]
		in := ok && slices.Contains(e.Values, have)
		if map[metav1.LabelSelectorOperator]bool{metav1.LabelSelectorOpIn: !in, metav1.LabelSelectorOpNotIn: in,
			metav1.LabelSelectorOpExists: !ok, metav1.LabelSelectorOpDoesNotExist: ok}[e.Operator] {
			return false
		}
	}
	return true
}
