package lint

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/weave-npc/weave-npc/npc/policy"
)

// constraint is what a selector requires of one label: it is absent, or has a value that is one of some, or none of
// some.
type constraint struct {
	absent bool            // it may be absent
	others bool            // it may have any value that is not among values
	values map[string]bool // that it may have; if others is set, that it may not have
}

// free is the constraint that requires nothing.
func free() constraint { return constraint{absent: true, others: true, values: map[string]bool{}} }

func (c constraint) allows(value string) bool { return c.values[value] != c.others }

// and restricts the constraint by a requirement.
func (c constraint) and(r labels.Requirement) constraint {
	given := r.ValuesUnsorted()
	switch r.Operator() {
	case selection.Exists:
		c.absent = false
	case selection.DoesNotExist:
		c.others, c.values = false, nil
	case selection.In, selection.Equals, selection.DoubleEquals:
		values := map[string]bool{}
		for _, v := range given {
			if c.allows(v) {
				values[v] = true
			}
		}
		c = constraint{values: values}
	case selection.NotIn, selection.NotEquals:
		values := map[string]bool{}
		for v := range c.values {
			if c.others || !slices.Contains(given, v) {
				values[v] = true
			}
		}
		if c.others {
			for _, v := range given {
				values[v] = true
			}
		}
		c.values = values
	}
	return c
}

// isEmpty reports whether no label meets the constraint.
func (c constraint) isEmpty() bool { return !c.absent && !c.others && len(c.values) == 0 }

// within reports whether all that meets the constraint meets another one.
func (c constraint) within(d constraint) bool {
	if c.absent && !d.absent || c.others && !d.others {
		return false
	}
	if !c.others {
		for v := range c.values {
			if !d.allows(v) {
				return false
			}
		}
		return true
	}
	for v := range d.values { // both allow all but some values
		if !c.values[v] {
			return false
		}
	}
	return true
}

// constraints is what a selector requires, by the keys of labels. Nil is what nothing meets.
type constraints map[string]constraint

func constraintsOf(s policy.Selector) constraints {
	if _, possible := s.Unmet(nil); !possible {
		return nil
	}
	all := constraints{}
	if s.Selector == nil {
		return all
	}
	requirements, selectable := s.Requirements()
	if !selectable {
		return nil
	}
	for _, r := range requirements {
		c, ok := all[r.Key()]
		if !ok {
			c = free()
		}
		if c = c.and(r); c.isEmpty() {
			return nil
		}
		all[r.Key()] = c
	}
	return all
}

// within reports whether all labels that meet the constraints meet others.
func (all constraints) within(others constraints) bool {
	if all == nil {
		return true
	}
	if others == nil {
		return false
	}
	for key, d := range others {
		c, ok := all[key]
		if !ok {
			c = free()
		}
		if !c.within(d) {
			return false
		}
	}
	return true
}
