package networkpolicy

import (
	"time"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
)

// recountAfter is how long entries are not counted again only because policies are denied.
const recountAfter = time.Minute

// count counts the entries of the sets of pods that policies ask for. A set has as many as pods match, so that a policy
// of a few kilobytes can ask for millions. Nothing is counted until that may be more than a namespace may have.
type count struct {
	maxRules int
	counting bool
	// entries is how many there were when they were last counted, and at when that was.
	entries int
	at      time.Time
}

// Outgrown reports whether ReconcileBudget should be called because the sets of pods have grown.
func Outgrown(s *Isolation) bool { return s.activation.outgrown() }

func (s *activation) outgrown() bool {
	c, limit := &s.count, s.budget.Entries.Namespace
	if !c.counting {
		return s.sets.Entries() > limit
	}
	return s.sets.Entries() > c.entries+c.entries/4+limit/8
}

// recount counts what all policies ask for, if that is due.
func (s *activation) recount(namespaces map[string]*namespace) {
	c := &s.count
	due := s.outgrown()
	if c.counting {
		due = due || s.budget.Denied() > 0 && time.Since(c.at) >= recountAfter
	} else {
		due = due || s.mayOutgrow(namespaces)
	}
	if !due {
		return
	}
	c.counting, c.entries, c.at = true, s.sets.Entries(), time.Now()
	for name, ns := range namespaces {
		for _, p := range ns.policies {
			if s.charged(p) {
				s.budget.Recount(name, p.Name, s.entries(p))
			}
		}
	}
}

// mayOutgrow reports whether the sets would have more entries than a namespace may have if each selector selected all
// pods that it is asked about.
func (s *activation) mayOutgrow(namespaces map[string]*namespace) bool {
	n := 0
	for _, ns := range namespaces {
		for _, p := range ns.policies {
			if !s.charged(p) {
				continue
			}
			if n += s.bound(p); n > s.budget.Entries.Namespace {
				return true
			}
		}
	}
	return false
}

// bound returns how many entries the sets of a policy's peers have at most.
func (s *activation) bound(p *enforced) (n int) {
	for _, of := range p.Merged {
		for _, r := range of {
			for i := range r.Peers {
				n += index.Bound(s.sets, &r.Peers[i])
			}
		}
	}
	return n
}

// entries returns the sets of pods that a policy asks for, each with the number of its entries. A policy that has too
// many for its namespace is not counted to the end.
func (s *activation) entries(p *enforced) map[string]int {
	rendered := s.render(p)
	sets, out, sum := rendered.Sets, map[string]int{}, 0
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
		out[set.ID] = s.sets.Count(set)
		sum += out[set.ID]
	}
	return out
}

// account returns what a policy asks for.
func (s *activation) account(p *enforced) quota.Account {
	a := quota.Account{Namespace: p.Namespace, Name: p.Name, Created: p.created, Cost: p.Cost}
	if s.count.counting {
		a.Members = s.entries(p)
	}
	return a
}
