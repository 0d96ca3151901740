package index

import (
	"slices"

	"k8s.io/apimachinery/pkg/selection"

	"github.com/weave-npc/weave-npc/npc/rules"
)

// selectorSet holds the selectors of one scope, found by a label that they ask for. The zero selectorSet is empty.
type selectorSet struct {
	byLabel map[wanted][]*selector
	rest    []*selector
}

// wanted is a label by which a selector is found: one that every pod has that it matches.
type wanted struct {
	label
	// anyValue is set if the key is enough.
	anyValue bool
}

// wants returns the labels of which every pod has exactly one that the selector matches; none if there are no such.
func wants(s rules.SelectorSpec) (out []wanted) {
	if s.Pods == nil {
		return nil
	}
	requirements, _ := s.Pods.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.Values(); out == nil || out[0].anyValue || values.Len() < len(out) {
				out = nil
				for value := range values {
					out = append(out, wanted{label: label{r.Key(), value}})
				}
			}
		case selection.Exists:
			if out == nil {
				out = []wanted{{label{key: r.Key()}, true}}
			}
		}
	}
	return out
}

func (ss *selectorSet) add(s *selector) {
	wants := wants(s.SelectorSpec)
	if wants == nil {
		ss.rest = append(ss.rest, s)
		return
	}
	if ss.byLabel == nil {
		ss.byLabel = map[wanted][]*selector{}
	}
	for _, w := range wants {
		ss.byLabel[w] = append(ss.byLabel[w], s)
	}
}

func (ss *selectorSet) remove(s *selector) {
	without := func(l []*selector) []*selector {
		if i := slices.Index(l, s); i >= 0 {
			return slices.Delete(l, i, i+1)
		}
		return l
	}
	wants := wants(s.SelectorSpec)
	if wants == nil {
		ss.rest = without(ss.rest)
	}
	for _, w := range wants {
		if ss.byLabel[w] = without(ss.byLabel[w]); len(ss.byLabel[w]) == 0 {
			delete(ss.byLabel, w)
		}
	}
}

// each calls f with the selectors that match a pod.
func (ss *selectorSet) each(p *Pod, f func(*selector)) {
	try := func(l []*selector) {
		for _, s := range l {
			if s.matches(p) {
				f(s)
			}
		}
	}
	try(ss.rest)
	if len(ss.byLabel) > 0 {
		for _, l := range p.labels {
			try(ss.byLabel[wanted{label: l}])
			try(ss.byLabel[wanted{label{key: l.key}, true}])
		}
	}
}

func (ss *selectorSet) empty() bool { return len(ss.byLabel)+len(ss.rest) == 0 }
