package labelset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"k8s.io/apimachinery/pkg/labels"
)

// TestSharedTexts shows that equal texts share their memory, and not with what they were read with.
func TestSharedTexts(t *testing.T) {
	var i Interner
	read := "app=web,role=client"
	first, second := i.Share(read[:3]), i.Share(strings.Clone("app"))
	if first != "app" || unsafe.StringData(first) != unsafe.StringData(second) || unsafe.StringData(first) == unsafe.StringData(read) {
		t.Errorf("%q and %q do not share their memory, or do with what was read", first, second)
	}
	one := i.Of(map[string]string{"role": "client", "app": "web"})
	if !slices.Equal(one, Set{{"app", "web"}, {"role", "client"}}) || unsafe.StringData(one[0].Key) != unsafe.StringData(first) {
		t.Errorf("labels: %v", one)
	}
	if i.Of(nil) != nil {
		t.Error("no labels take memory")
	}
}

// TestSharedSets shows that pods with the same labels share them, and others do not.
func TestSharedSets(t *testing.T) {
	var i Interner
	large := map[string]string{"app": strings.Repeat("x", maxShared)}
	for _, c := range []struct {
		name   string
		a, b   map[string]string
		shared bool
	}{
		{"the same", map[string]string{"app": "web", "role": "x"}, map[string]string{"role": "x", "app": "web"}, true},
		{"another value", map[string]string{"app": "web", "role": "x"}, map[string]string{"app": "web", "role": "y"}, false},
		{"a label less", map[string]string{"app": "web", "role": "x"}, map[string]string{"app": "web"}, false},
		{"large", large, large, false},
	} {
		a, b := i.Of(c.a), i.Of(c.b)
		if !a.Equal(c.a) || !b.Equal(c.b) || (&a[0] == &b[0]) != c.shared {
			t.Errorf("%s: %v and %v share their memory: %t, want %t", c.name, a, b, &a[0] == &b[0], c.shared)
		}
	}
	for n := range 2*MaxTexts + 1 {
		if of := map[string]string{"n": fmt.Sprint(n)}; !new(i.Of(of)).Equal(of) || len(i.sets) > MaxTexts {
			t.Fatalf("%v is taken for another, or %d sets are remembered", of, len(i.sets))
		}
	}
}

// TestSharingIsBounded shows that what is remembered does not grow without end, and is right all the same.
func TestSharingIsBounded(t *testing.T) {
	var i Interner
	for n := range 2*MaxTexts + 1 {
		if text := fmt.Sprint(n); i.Share(text) != text || len(i.known) > MaxTexts {
			t.Fatalf("%s is taken for another, or %d texts are remembered", text, len(i.known))
		}
	}
	if i.known["8192"] != "8192" {
		t.Error("the last text is not remembered")
	}
}

// TestSelectorsAreFoundByLabels shows by which labels a selector is looked up: everything that it matches has exactly
// one of them. Few are best, and a value is better than a key; without any the selector is tried with everything.
func TestSelectorsAreFoundByLabels(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "[]",
		"!app":                      "[]",
		"app!=web":                  "[]",
		"app=web":                   "[app=web]",
		"app":                       "[app]",
		"app,tier=x":                "[tier=x]",
		"tier=x,zone":               "[tier=x]",
		"app in (a,b)":              "[app=a app=b]",
		"app in (a,b),tier in (x)":  "[tier=x]",
		"app=a,tier in (x,y)":       "[app=a]",
		"app in (a,b),!tier,zone!=": "[app=a app=b]",
	} {
		s, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range wants(s) {
			if w.anyValue {
				got = append(got, w.Key)
			} else {
				got = append(got, w.Key+"="+w.Value)
			}
		}
		if slices.Sort(got); fmt.Sprint(got) != want {
			t.Errorf("%s is found by %s, want %s", text, got, want)
		}
	}
}
