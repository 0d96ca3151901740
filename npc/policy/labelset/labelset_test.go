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
