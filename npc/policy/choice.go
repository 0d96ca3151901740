package policy

import (
	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Choice is a label selector, of which it is known whether it can match anything.
type Choice struct {
	labels.Selector // nil: everything
	nothing         bool
}

// Chooses reports whether an object with such labels is chosen.
func (c Choice) Chooses(l labels.Labels) bool {
	return !c.nothing && (c.Selector == nil || c.Selector.Matches(l))
}

// Matches says whether an object with such labels is chosen.
func (c Choice) Matches(l map[string]string) bool { return c.Chooses(labels.Set(l)) }

// Unmet are the requirements that labels do not meet. Possible is false if no labels could: a value is asked for that no label can have.
func (c Choice) Unmet(l map[string]string) (unmet labels.Requirements, possible bool) {
	if c.Selector != nil {
		all, _ := c.Requirements()
		for _, r := range all {
			if !r.Matches(labels.Set(l)) {
				unmet = append(unmet, r)
			}
		}
	}
	return unmet, !c.nothing
}

// String is the selector as kubectl takes it; empty if it chooses everything.
func (c Choice) String() string {
	switch {
	case c.nothing:
		return "a value that no label can have"
	case c.Selector == nil:
		return ""
	}
	return c.Selector.String()
}

// compileSelector makes a Choice of a label selector. A value that no label can have matches
// nothing, as it would in the API; a key or an operator that cannot be is an error.
func compileSelector(s *metav1.LabelSelector) (Choice, error) {
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
		return false, nil
	}
	var c Choice
	for k, v := range s.MatchLabels {
		nothing, err := require(k, selection.Equals, []string{v})
		if err != nil {
			return Choice{}, errors.Wrap(err, "matchLabels")
		}
		c.nothing = c.nothing || nothing
	}
	for i, e := range s.MatchExpressions {
		op, ok := operators[e.Operator]
		if !ok {
			return Choice{}, errors.Errorf("matchExpressions[%d]: %q is no operator", i, e.Operator)
		}
		nothing, err := require(e.Key, op, e.Values)
		if err != nil {
			return Choice{}, errors.Wrapf(err, "matchExpressions[%d]", i)
		}
		c.nothing = c.nothing || nothing
	}
	if len(all) > 0 {
		c.Selector = labels.NewSelector().Add(all...)
	}
	return c, nil
}

// operators of the API -> those of the labels package.
var operators = map[metav1.LabelSelectorOperator]selection.Operator{
	metav1.LabelSelectorOpIn:           selection.In,
	metav1.LabelSelectorOpNotIn:        selection.NotIn,
	metav1.LabelSelectorOpExists:       selection.Exists,
	metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
}
