package policy

import (
	"maps"
	"slices"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weave-npc/weave-npc/npc"
)

// Selector is a compiled label selector. The zero Selector matches everything.
type Selector struct {
	labels.Selector // nil: everything
	// nothing is set if the selector requires a value that no label can have.
	nothing bool
	cost    int
}

// Cost returns about how many comparisons of 10 ns it takes to match labels, if these are few.
func (s Selector) Cost() int { return 1 + s.cost }

// Selects reports whether the selector matches labels.
func (s Selector) Selects(l labels.Labels) bool {
	return !s.nothing && (s.Selector == nil || s.Selector.Matches(l))
}

// SelectsAll reports whether the selector matches whatever the labels are.
func (s Selector) SelectsAll() bool { return !s.nothing && s.Selector == nil }

// Matches reports whether the selector matches labels.
func (s Selector) Matches(l map[string]string) bool { return s.Selects(labels.Set(l)) }

// SelectsPod reports whether the selector matches a pod's labels, as far as they are known.
func (s Selector) SelectsPod(p *npc.Pod) bool {
	return s.SelectsAll() || !p.Unlabelled && s.Matches(p.Labels)
}

// Unmet returns the requirements that labels do not meet. Possible is false if no labels can: the selector requires a
// value that no label can have.
func (s Selector) Unmet(l map[string]string) (unmet labels.Requirements, possible bool) {
	for _, r := range s.requirements() {
		if !r.Matches(labels.Set(l)) {
			unmet = append(unmet, r)
		}
	}
	return unmet, !s.nothing
}

// Keys returns the keys of the labels that the selector depends on.
func (s Selector) Keys() []string {
	var keys []string
	for _, r := range s.requirements() {
		keys = append(keys, r.Key())
	}
	return keys
}

func (s Selector) requirements() labels.Requirements {
	if s.Selector == nil {
		return nil
	}
	all, _ := s.Requirements()
	return all
}

// String returns the selector as kubectl takes it. It is empty for a selector of everything.
func (s Selector) String() string {
	switch {
	case s.nothing:
		return "a value that no label can have"
	case s.Selector == nil:
		return ""
	}
	return s.Selector.String()
}

// compileSelector compiles a label selector. A value that no label can have matches nothing, as it would in the API; an
// invalid key or operator is an error.
func compileSelector(s *metav1.LabelSelector) (Selector, error) {
	var c Selector
	var all labels.Requirements
	require := func(key string, op selection.Operator, values []string) (nothing bool, err error) {
		possible := values[:0:0]
		for _, v := range values {
			if len(validation.IsValidLabelValue(v)) == 0 {
				possible = append(possible, v)
			}
		}
		if len(values) > 0 && len(possible) == 0 {
			if errs := validation.IsQualifiedName(key); len(errs) > 0 {
				return false, errors.Errorf("key %q: %s", key, errs[0])
			}
			return op != selection.NotIn, nil
		}
		r, err := labels.NewRequirement(key, op, possible)
		if err != nil {
			return false, err
		}
		all = append(all, *r)
		c.cost += 4 + len(possible)/4
		return false, nil
	}
	// Sorted, so that the same selector has the same text or error each time.
	for _, k := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		nothing, err := require(k, selection.Equals, []string{s.MatchLabels[k]})
		if err != nil {
			return Selector{}, errors.Wrap(err, "matchLabels")
		}
		c.nothing = c.nothing || nothing
	}
	for i, e := range s.MatchExpressions {
		op, ok := operators[e.Operator]
		if !ok {
			return Selector{}, errors.Errorf("matchExpressions[%d]: %q is no operator", i, e.Operator)
		}
		nothing, err := require(e.Key, op, e.Values)
		if err != nil {
			return Selector{}, errors.Wrapf(err, "matchExpressions[%d]", i)
		}
		c.nothing = c.nothing || nothing
	}
	if len(all) > 0 {
		c.Selector = labels.NewSelector().Add(all...)
	}
	return c, nil
}

// operators maps the API's operators to those of the labels package.
var operators = map[metav1.LabelSelectorOperator]selection.Operator{
	metav1.LabelSelectorOpIn:           selection.In,
	metav1.LabelSelectorOpNotIn:        selection.NotIn,
	metav1.LabelSelectorOpExists:       selection.Exists,
	metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
}
