package lint

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// shortest is the length of the shortest text that may be a misspelt one: short ones are similar by chance.
const shortest = 4

// nearest returns the name that another one is probably a misspelling of; empty if there is none. Names that differ in
// digits alone are different ones.
func nearest(name string, names iter.Seq[string]) string {
	if len(name) < shortest {
		return ""
	}
	most := 1
	if len(name) >= 2*shortest {
		most = 2
	}
	return spelling.Nearest(name, func(yield func(string) bool) {
		for candidate := range names {
			if len(candidate) >= shortest && withoutDigits(candidate) != withoutDigits(name) && !yield(candidate) {
				return
			}
		}
	}, most)
}

func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, s)
}

func didYouMean(near string) string {
	if near == "" {
		return ""
	}
	return "; did you mean " + near + "?"
}

// typo is a requirement of a selector that names a label that nothing has, and the label that was probably intended.
type typo struct{ field, wrong, near string }

// typos returns the requirements of a selector that are probably misspelt, of labels that some objects have.
func typos(field string, s *metav1.LabelSelector, known []vocabulary) (out []typo) {
	if s == nil {
		return nil
	}
	check := func(field, key string, values []string) {
		if !slices.ContainsFunc(known, func(v vocabulary) bool { return len(v[key]) > 0 }) {
			near := nearest(key, keysOf(known))
			if near != "" {
				out = append(out, typo{field, "a label " + key, "label " + near})
			}
			for _, value := range values {
				named := func(v vocabulary) bool { return v[corev1.LabelMetadataName][value] }
				if near == "" && slices.ContainsFunc(known, named) {
					out = append(out, typo{field, key + "=" + value, corev1.LabelMetadataName + "=" + value})
				}
			}
			return
		}
		for _, value := range values {
			if slices.ContainsFunc(known, func(v vocabulary) bool { return v[key][value] }) {
				continue
			}
			if near := nearest(value, valuesOf(known, key)); near != "" {
				out = append(out, typo{field, key + "=" + value, key + "=" + near})
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		check(field+".matchLabels", k, []string{s.MatchLabels[k]})
	}
	for i, e := range s.MatchExpressions {
		check(fmt.Sprintf("%s.matchExpressions[%d]", field, i), e.Key, e.Values)
	}
	return out
}

// keysOf yields the keys of labels, each at least once.
func keysOf(known []vocabulary) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, v := range known {
			for k := range v {
				if !yield(k) {
					return
				}
			}
		}
	}
}

// valuesOf yields the values of a label, each at least once.
func valuesOf(known []vocabulary, key string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, v := range known {
			for value := range v[key] {
				if !yield(value) {
					return
				}
			}
		}
	}
}

// podTypos returns the typos of a selector of pods, in the namespaces that another selector selects.
func (l *pods) podTypos(field string, s *metav1.LabelSelector, namespace string, namespaces *policy.Selector) []typo {
	var known []vocabulary
	for name := range l.namespacesOf(namespace, namespaces) {
		if v := l.podLabels[name]; v != nil {
			known = append(known, v)
		}
	}
	return typos(field, s, known)
}

// namespaceTypos returns the typos of a selector of namespaces.
func (l *pods) namespaceTypos(field string, s *metav1.LabelSelector) []typo {
	return typos(field, s, []vocabulary{l.namespaceLabels})
}

// suggestions returns the end of a sentence that offers the names that were probably intended.
func suggestions(all []typo) (text string) {
	for i, t := range all {
		if i == 0 {
			text = "; did you mean "
		} else {
			text += ", "
		}
		text += t.near
	}
	if text != "" {
		text += "?"
	}
	return text
}

// addTypos adds findings about the typos of a selector that matches something.
func (l *linter) addTypos(s subject, all []typo) {
	for _, t := range all {
		l.add(labelTypo, s, t.field, fmt.Sprintf("nothing there has %s; did you mean %s?", t.wrong, t.near), "")
	}
}
