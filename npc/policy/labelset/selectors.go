package labelset

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Selectors holds what has a selector, found by a label that the selector asks for. The zero Selectors is empty.
type Selectors[T comparable] struct {
	byLabel map[wanted][]T
	rest    []T
}

// wanted is a label by which a selector is found: one that everything has that it matches.
type wanted struct {
	Label
	// anyValue is set if the key is enough.
	anyValue bool
}

// wants returns labels such that everything that the selector matches has exactly one of them; none if there are no
// such labels. A nil selector matches everything.
func wants(s labels.Selector) (out []wanted) {
	if s == nil {
		return nil
	}
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.Values(); out == nil || out[0].anyValue || values.Len() < len(out) {
				out = nil
				for value := range values {
					out = append(out, wanted{Label: Label{r.Key(), value}})
				}
			}
		case selection.Exists:
			if out == nil {
				out = []wanted{{Label{Key: r.Key()}, true}}
			}
		}
	}
	return out
}

// Add adds what has a selector. Nil matches everything.
func (x *Selectors[T]) Add(t T, s labels.Selector) {
	wants := wants(s)
	if wants == nil {
		x.rest = append(x.rest, t)
		return
	}
	if x.byLabel == nil {
		x.byLabel = map[wanted][]T{}
	}
	for _, w := range wants {
		x.byLabel[w] = append(x.byLabel[w], t)
	}
}

// Remove removes what was added with a selector.
func (x *Selectors[T]) Remove(t T, s labels.Selector) {
	without := func(l []T) []T {
		if i := slices.Index(l, t); i >= 0 {
			return slices.Delete(l, i, i+1)
		}
		return l
	}
	wants := wants(s)
	if wants == nil {
		x.rest = without(x.rest)
	}
	for _, w := range wants {
		if x.byLabel[w] = without(x.byLabel[w]); len(x.byLabel[w]) == 0 {
			delete(x.byLabel, w)
		}
	}
}

// Each calls f with everything whose selector may match labels, once.
func (x *Selectors[T]) Each(of Set, f func(T)) {
	try := func(l []T) {
		for _, t := range l {
			f(t)
		}
	}
	try(x.rest)
	if len(x.byLabel) > 0 {
		for _, l := range of {
			try(x.byLabel[wanted{Label: l}])
			try(x.byLabel[wanted{Label{Key: l.Key}, true}])
		}
	}
}

// Empty reports whether nothing is left.
func (x *Selectors[T]) Empty() bool { return len(x.byLabel)+len(x.rest) == 0 }
