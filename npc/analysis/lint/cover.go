package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// coverage finds policies and rules of one namespace that others make superfluous. What it found is not asked any more
// when it looks for more: all can be removed together.
type coverage struct {
	*relation
	// around holds for each policy those, itself among them, that select at least the same pods, whatever pods there
	// are.
	around map[*cluster.Policy][]*cluster.Policy
	names  map[*policy.Rule]string
	gone   map[*policy.Rule]bool
	absent map[*cluster.Policy]bool
}

func newCoverage(r *relation, policies []*cluster.Policy) *coverage {
	c := &coverage{relation: r, around: map[*cluster.Policy][]*cluster.Policy{},
		names: map[*policy.Rule]string{},
		gone:  map[*policy.Rule]bool{}, absent: map[*cluster.Policy]bool{}}
	for _, p := range policies {
		for _, q := range policies {
			if r.selectorWithin(&p.Target, &q.Target) {
				c.around[p] = append(c.around[p], q)
			}
		}
		for _, d := range npc.Directions {
			for i := range p.Rules[d] {
				c.names[&p.Rules[d][i]] = fmt.Sprintf("%s[%d] of %s", d, i, p.Key())
			}
		}
	}
	return c
}

// checkCovered looks for policies and rules that others cover. Of those that cover each other the last by name is
// found.
func (l *linter) checkCovered() {
	byNamespace := map[string][]*cluster.Policy{}
	for _, p := range l.view.Policies {
		if p.Invalid == nil {
			byNamespace[p.Namespace] = append(byNamespace[p.Namespace], p)
		}
	}
	r := newRelation(l.view)
	for _, policies := range byNamespace {
		if len(policies) > maxCompared {
			continue
		}
		c := newCoverage(r, policies)
		for _, p := range slices.Backward(policies) {
			if by := c.coveringPolicies(p); len(by) > 0 && len(l.selected(p.Namespace, nil, p.Target)) > 0 {
				c.absent[p] = true
				l.add(policyCovered, subjectOf(p), "", "isolates and allows nothing more than "+strings.Join(by, ", "),
					"")
			}
		}
		for _, p := range slices.Backward(policies) {
			if !c.absent[p] {
				l.checkRulesCovered(c, p)
			}
		}
	}
}

// maxCompared is the number of policies of a namespace that are still compared, each with each.
const maxCompared = 2000

func subjectOf(p *cluster.Policy) subject {
	return subject{manifest.KindNetworkPolicy, p.Namespace, p.Name}
}

// coveringPolicies returns the names of policies that isolate all that a policy does and allow all that it does; none
// if they do not.
func (c *coverage) coveringPolicies(p *cluster.Policy) []string {
	by := map[string]bool{}
	for _, d := range npc.Directions {
		if !p.Isolates[d] {
			continue
		}
		var isolating string
		var rules []*policy.Rule
		for _, q := range c.around[p] {
			if q == p || c.absent[q] || !q.Isolates[d] {
				continue
			}
			if isolating == "" {
				isolating = q.Key()
			}
			rules = append(rules, pointers(q.Rules[d])...)
		}
		if isolating == "" {
			return nil
		}
		before := len(by)
		for i := range p.Rules[d] {
			covering := c.covered(&p.Rules[d][i], rules, nil)
			if len(covering) == 0 {
				return nil
			}
			for _, r := range covering {
				_, name, _ := strings.Cut(c.names[r], " of ")
				by[name] = true
			}
		}
		if len(by) == before { // it has no rules, or those that cover them are of policies that are named already
			by[isolating] = true
		}
	}
	return slices.Sorted(maps.Keys(by))
}

// checkRulesCovered looks for rules of a policy that others cover.
func (l *linter) checkRulesCovered(c *coverage, p *cluster.Policy) {
	for _, d := range npc.Directions {
		var others []*policy.Rule
		for _, q := range c.around[p] {
			if !c.absent[q] && q.Isolates[d] {
				others = append(others, pointers(q.Rules[d])...)
			}
		}
		for i := len(p.Rules[d]) - 1; i >= 0; i-- {
			r := &p.Rules[d][i]
			covering := c.covered(r, others, c.gone)
			if len(covering) == 0 {
				continue
			}
			c.gone[r] = true
			level, names := Warning, make([]string, 0, len(covering))
			for _, o := range covering {
				names = append(names, c.names[o])
				if !slices.Contains(pointers(p.Rules[d]), o) {
					level = Note
				}
			}
			slices.Sort(names)
			l.addAs(level, ruleCovered, subjectOf(p), fmt.Sprintf("spec.%s[%d]", d, i),
				"allows nothing more than "+strings.Join(names, ", "), "")
		}
	}
}
