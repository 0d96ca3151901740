package iptables

import (
	"context"
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// maxTries bounds the restores that a search for rejected rules may take.
const maxTries = 64

// Refusal is a rule that the kernel rejected.
type Refusal struct {
	ID  string // the rule's
	Err error
}

// ApplyWithout carries out the update as Apply does, but leaves out the rules that the kernel rejects, as long as they
// are optional. Where the kernel does not name the rejected rules, as under legacy, ApplyWithout finds them by
// bisection in a chain called scratch, to which no rule leads, so that nothing in force is affected. With an error
// nothing has changed, and the refusals are those found until then.
func (t *Table) ApplyWithout(ctx context.Context, u Update, scratch string,
	optional func(Rule) bool) ([]Refusal, error) {
	b := bisection{table: t, scratch: scratch, tries: maxTries}
	var refused []Refusal
	for searched := false; ; {
		err := t.Apply(ctx, u)
		var failure *restoreError
		if err == nil || !errors.As(err, &failure) || isLockFailure(err) {
			return refused, err
		}
		b.tries--
		found := namedRule(u, failure, optional)
		if found == nil && !searched {
			searched = true
			found = b.search(ctx, u.optionalRules(optional))
		}
		if found == nil {
			return refused, err
		}
		refused = append(refused, found...)
		if b.tries <= 0 {
			return refused, errors.Wrapf(err, "after %d tries", maxTries)
		}
		u = u.Without(func(r Rule) bool {
			return slices.ContainsFunc(found, func(x Refusal) bool { return x.ID == r.ID() })
		})
	}
}

// isLockFailure reports whether an update failed because of the lock that legacy programs share. No rule is to blame
// then.
func isLockFailure(err error) bool {
	var failure *restoreError
	return errors.As(err, &failure) &&
		(strings.Contains(failure.Output, "xtables lock") || strings.Contains(failure.Output, "lock file"))
}

// namedRule returns the rule that the failure names, if it is an optional one.
func namedRule(u Update, failure *restoreError, optional func(Rule) bool) []Refusal {
	is := func(r Rule) bool { return r.ID() == failure.ID }
	if failure.ID == "" || !slices.ContainsFunc(u.optionalRules(optional), is) {
		return nil
	}
	return []Refusal{{failure.ID, failure}}
}

// bisection is a search for rules that the kernel rejects.
type bisection struct {
	table   *Table
	scratch string
	tries   int   // remaining restores
	err     error // of the last try
}

// search returns the rejected rules, or nil if the kernel does not even accept the scratch chain without rules.
func (b *bisection) search(ctx context.Context, rules []Rule) []Refusal {
	if len(rules) == 0 || !b.try(ctx, nil) {
		return nil
	}
	found := b.find(ctx, rules)
	// If this fails, a later update deletes the chain as it deletes every unknown chain with the prefix.
	_ = b.table.Apply(ctx, Update{Delete: []string{b.scratch}})
	return found
}

// try fills the scratch chain and reports whether the kernel accepts the rules.
func (b *bisection) try(ctx context.Context, rules []Rule) bool {
	b.tries--
	b.err = b.table.Apply(ctx, Update{Replace: []Chain{{Name: b.scratch, Rules: rules}}})
	return b.err == nil
}

// find returns the rejected ones of rules.
func (b *bisection) find(ctx context.Context, rules []Rule) []Refusal {
	if len(rules) == 0 || b.tries <= 0 || ctx.Err() != nil {
		return nil
	}
	if b.try(ctx, rules) || isLockFailure(b.err) {
		return nil
	}
	if len(rules) == 1 {
		return []Refusal{{rules[0].ID(), b.err}}
	}
	half := len(rules) / 2
	return append(b.find(ctx, rules[:half]), b.find(ctx, rules[half:])...)
}

// optionalRules returns the optional rules of an update, chain by chain.
func (u Update) optionalRules(optional func(Rule) bool) []Rule {
	var rules []Rule
	add := func(from []Rule) {
		for _, r := range from {
			if optional(r) {
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
	for _, e := range u.Edits {
		for _, h := range e.Hunks {
			add(h.Insert)
		}
	}
	return rules
}
