package iptables

import (
	"context"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// maxTries is how many restores it may take to find the rules of an update that the kernel refuses.
const maxTries = 64

// Refusal is a rule that the kernel does not take.
type Refusal struct {
	ID  string // the rule's
	Err error
}

// ApplyWithout carries out the update as Apply does, but without those rules that the kernel refuses, as far as spare says that
// they can be left out. Where the kernel does not say which they are, as legacy does not, they are looked for by halves in a
// chain to which nothing leads, called scratch, so that nothing that is in force suffers. With an error nothing has
// changed, but what was refused up to then has been found out.
func (t *Table) ApplyWithout(ctx context.Context, u Update, scratch string, spare func(Rule) bool) ([]Refusal, error) {
	s := search{table: t, scratch: scratch, tries: maxTries}
	var refused []Refusal
	for searched := false; ; {
		err := t.Apply(ctx, u)
		var failure *RestoreError
		if err == nil || !errors.As(err, &failure) || noRulesFault(err) {
			return refused, err
		}
		s.tries--
		found := s.named(u, failure, spare)
		if found == nil && !searched {
			searched = true
			found = s.search(ctx, u.spareable(spare))
		}
		if found == nil {
			return refused, err
		}
		refused = append(refused, found...)
		if s.tries <= 0 {
			return refused, errors.Wrapf(err, "after %d tries", maxTries)
		}
		u = u.without(found)
	}
}

// noRulesFault says whether an update failed for want of the lock that legacy programs share.
func noRulesFault(err error) bool {
	var failure *RestoreError
	return errors.As(err, &failure) && (strings.Contains(failure.Output, "xtables lock") || strings.Contains(failure.Output, "lock file"))
}

// search looks for the rules that the kernel refuses.
type search struct {
	table   *Table
	scratch string
	// tries is how many restores are left.
	tries int
	// err is how the last try ended.
	err error
}

// named is the rule that the failure names, if it can be spared.
func (s *search) named(u Update, failure *RestoreError, spare func(Rule) bool) []Refusal {
	if failure.ID == "" || !slices.ContainsFunc(u.spareable(spare), func(r Rule) bool { return r.ID() == failure.ID }) {
		return nil
	}
	return []Refusal{{failure.ID, failure}}
}

// search looks for refused rules, unless it turns out that no rules are to blame.
func (s *search) search(ctx context.Context, rules []Rule) []Refusal {
	if len(rules) == 0 || !s.try(ctx, nil) {
		return nil
	}
	found := s.find(ctx, rules)
	// Should it fail, the chain is ours by its name, and is removed as any of ours that is not wanted.
	_ = s.table.Apply(ctx, Update{Delete: []string{s.scratch}})
	return found
}

// try fills the scratch chain.
func (s *search) try(ctx context.Context, rules []Rule) bool {
	s.tries--
	s.err = s.table.Apply(ctx, Update{Replace: []Chain{{Name: s.scratch, Rules: rules}}})
	return s.err == nil
}

// find looks for refused rules by halves.
func (s *search) find(ctx context.Context, rules []Rule) []Refusal {
	if len(rules) == 0 || s.tries <= 0 || ctx.Err() != nil {
		return nil
	}
	if s.try(ctx, rules) || noRulesFault(s.err) {
		return nil
	}
	if len(rules) == 1 {
		return []Refusal{{rules[0].ID(), s.err}}
	}
	half := len(rules) / 2
	return append(s.find(ctx, rules[:half]), s.find(ctx, rules[half:])...)
}

// spareable are the rules of an update that can be left out, chain by chain.
func (u Update) spareable(spare func(Rule) bool) []Rule {
	var rules []Rule
	add := func(from []Rule) {
		for _, r := range from {
			if spare(r) {
				rules = append(rules, r)
			}
		}
	}
	for _, c := range u.Replace {
		add(c.Rules)
	}
	for _, inserted := range u.Insert {
		add(inserted)
	}
	return rules
}

// without is the update without the rules that were refused.
func (u Update) without(refused []Refusal) Update {
	is := func(r Rule) bool {
		return slices.ContainsFunc(refused, func(x Refusal) bool { return x.ID == r.ID() })
	}
	out := Update{Jumps: u.Jumps, Delete: u.Delete, Insert: map[string][]Rule{}}
	for _, c := range u.Replace {
		c.Rules = slices.DeleteFunc(slices.Clone(c.Rules), is)
		out.Replace = append(out.Replace, c)
	}
	for chain, rules := range u.Insert {
		if rules = slices.DeleteFunc(slices.Clone(rules), is); len(rules) > 0 {
			out.Insert[chain] = rules
		}
	}
	return out
}
