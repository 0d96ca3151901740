package networkpolicy

import (
	"slices"
	"time"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
)

// recountAfter is how long entries are not counted again only because policies are denied.
const recountAfter = time.Minute

// counting counts the entries of the sets of pods that policies ask for. A set has as many as pods match, so that a
// policy of a few kilobytes can ask for millions. Nothing is counted until that may be more than a namespace may have.
type counting struct {
	maxRules int
	// bound is how many there are at most, if each selector selects all pods that it is asked about. It does not shrink
	// before it passes the limit.
	bound int
	on    bool
	// bounded is set if accounts may have upper bounds instead of numbers.
	bounded bool
	// known are the numbers of sets while policies are counted that share them.
	known map[string]int
	// entries is how many there were when they were last counted, and at when that was.
	entries int
	at      time.Time
}

// Outgrown reports whether ReconcileBudget should be called because the sets of pods have grown.
func Outgrown(s *Isolation) bool { return s.activation.outgrown() }

func (s *activation) outgrown() bool {
	c, limit := &s.count, s.budget.Entries.Namespace
	if !c.on {
		return index.Entries(s.sets) > limit
	}
	return index.Entries(s.sets) > c.entries+c.entries/4+limit/8
}

// recount counts what all policies ask for, if that is due. What is denied has no sets, and takes long to count.
func (s *activation) recount(namespaces map[string]*namespace) {
	c := &s.count
	all := s.outgrown()
	if c.on {
		all = all || s.budget.Denied() > 0 && time.Since(c.at) >= recountAfter
	} else {
		all = all || s.mayOutgrow(namespaces)
	}
	if !all && (!c.bounded || s.budget.Denied() == 0) {
		return
	}
	if all {
		c.on, c.entries, c.at = true, index.Entries(s.sets), time.Now()
	}
	c.known = map[string]int{}
	for name, ns := range namespaces {
		for _, p := range ns.policies {
			if s.charged(p) && (all || p.denied == nil) {
				s.budget.Recount(name, p.Name, s.membersOf(p, s.render(p), true))
			}
		}
	}
	c.bounded, c.known = false, nil
}

// mayOutgrow reports whether the sets may have more entries than a namespace may have, or soon may.
func (s *activation) mayOutgrow(namespaces map[string]*namespace) bool {
	if s.count.bound <= s.budget.Entries.Namespace {
		return false
	}
	s.count.bound = 0
	for _, ns := range namespaces {
		for _, p := range ns.policies {
			if s.charged(p) {
				s.count.bound += s.boundOf(p)
			}
		}
	}
	return s.count.bound > s.budget.Entries.Namespace/2
}

// boundOf returns how many entries the sets of a policy's peers have at most.
func (s *activation) boundOf(p *enforced) (n int) {
	for _, of := range p.Merged {
		for _, r := range of {
			for i := range r.Peers {
				n += index.Bound(s.sets, &r.Peers[i])
			}
		}
	}
	return n
}

// membersOf returns the sets of pods that a policy asks for, each with the number of its entries, or with an upper bound
// if that need not be exact. A policy that has too many for its namespace is not counted to the end.
func (s *activation) membersOf(p *enforced, rendered rules.Rendered, exact bool) map[string]int {
	sets, out, sum := slices.Clone(rendered.Sets), map[string]int{}, 0
	alone := map[*enforced]struct{}{{Policy: p.Policy, rules: rendered.Rules}: {}}
	for _, d := range npc.Directions {
		for _, of := range entriesOf(alone, d, s.count.maxRules) {
			for _, e := range of {
				if e.peers != nil {
					sets = append(sets, *e.peers)
				}
			}
		}
	}
	for _, set := range rules.Distinct(sets) {
		if sum > s.budget.Entries.Namespace {
			break
		}
		n, counted := s.count.known[set.ID]
		if !counted {
			n, counted = index.Count(s.sets, set, exact)
		}
		if s.count.bounded = s.count.bounded || !counted; s.count.known != nil {
			s.count.known[set.ID] = n
		}
		out[set.ID] = n
		sum += n
	}
	return out
}

// open asks for room for a policy. Its entries are counted if there is none for as many as there may be.
func (s *activation) open(p *enforced, render func() rules.Rendered) error {
	a := quota.Account{Namespace: p.Namespace, Name: p.Name, Created: p.created, Cost: p.Cost}
	if !s.count.on {
		s.count.bound += s.boundOf(p)
		return s.budget.Open(a)
	}
	a.Members = s.membersOf(p, render(), false)
	err := s.budget.Open(a)
	if err != nil {
		a.Members = s.membersOf(p, render(), true)
		err = s.budget.Open(a)
	}
	return err
}
