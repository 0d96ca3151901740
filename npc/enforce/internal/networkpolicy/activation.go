package networkpolicy

import (
	"slices"
	"sync"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
)

// activation has the rules of policies written that select a local pod and fit into the limits.
type activation struct {
	sets    *index.Sets
	budget  *quota.Usage
	reports enforce.InvalidPolicies
	// synced is set once all policies are known that there were at the start.
	synced bool
	// changed are the namespaces whose pods or rules have to be assigned to shards again.
	changed map[*namespace]struct{}
	count   counting
}

func newActivation(sets *index.Sets, limits quota.Limits, maxRules int) activation {
	return activation{sets: sets, budget: quota.NewUsage(limits), reports: enforce.NewInvalidPolicies(),
		changed: map[*namespace]struct{}{}, count: counting{maxRules: maxRules}}
}

// charged reports whether a policy needs room for its rules: it selects a local pod.
func (s *activation) charged(p *enforced) bool { return len(p.selected) > 0 && p.Cost.Rules > 0 }

// admit asks for room for a policy's rules and activates it, if it selects a local pod and is not active yet.
func (s *activation) admit(ns *namespace, p *enforced) {
	if p.active {
		return
	}
	render := sync.OnceValue(func() rules.Rendered { return s.render(p) })
	if s.charged(p) {
		p.denied = s.open(p, render)
	}
	s.activate(ns, p, render)
}

// refund gives back what admit asked for.
func (s *activation) refund(p *enforced) {
	s.budget.Close(p.Namespace, p.Name)
	if p.denied != nil {
		p.denied = nil
		s.report(p)
	}
}

// activate provisions what a policy's rules need, if it selects a local pod.
func (s *activation) activate(ns *namespace, p *enforced, render func() rules.Rendered) {
	if len(p.selected) == 0 || p.active {
		return
	}
	p.active, p.rules = true, [len(npc.Directions)][]rules.RenderedRule{}
	if p.denied == nil {
		rendered := render()
		p.rules, p.sets = rendered.Rules, s.sets.Provision(rendered.Sets, p.owner)
		for _, d := range npc.Directions {
			if len(p.Merged[d]) > 0 {
				ns.ruleSet(d).users[p] = struct{}{}
			}
		}
	}
	s.changed[ns] = struct{}{}
}

// reselect finds out whether a policy selects a pod.
func (s *activation) reselect(ns *namespace, p *enforced, q *index.Pod) {
	was := p.selects(q)
	switch is := q.Local() && q.SelectedBy(p.Target); {
	case is && !was:
		p.selected[q] = struct{}{}
		addTo(&ns.pods[q].isolating, p, 1)
		s.admit(ns, p)
	case was && !is:
		delete(p.selected, q)
		addTo(&ns.pods[q].isolating, p, -1)
		if len(p.selected) == 0 {
			s.refund(p)
			s.deactivate(ns, p)
		}
	}
}

// deactivate takes back what activate did.
func (s *activation) deactivate(ns *namespace, p *enforced) {
	p.active = false
	ns.withdraw(p)
	s.sets.Deprovision(p.sets, p.owner)
	p.sets = index.Provisioned{}
	s.changed[ns] = struct{}{}
}

func (s *activation) render(p *enforced) rules.Rendered {
	return rules.Render(&p.Policy.Policy, p.Namespace, p.Key(), s.sets.FitsList)
}

// misfits reports whether a policy's rules would be others now.
func (s *activation) misfits(p *enforced) bool {
	now := s.render(p).Rules
	for d := range npc.Directions {
		if !slices.EqualFunc(p.rules[d], now[d], rules.RenderedRule.Equal) {
			return true
		}
	}
	return false
}

// renew has an active policy's rules written again; denied is why they exceed the limits, or nil.
func (s *activation) renew(ns *namespace, p *enforced, denied error) *enforced {
	again := newEnforced(p.Policy, p.selected)
	again.denied = denied
	ns.policies[p.Name] = again
	s.activate(ns, again, func() rules.Rendered { return s.render(again) })
	s.deactivate(ns, p)
	return again
}

// report records that a policy is invalid, to be reported once, or that it is valid again.
func (s *activation) report(p *enforced) {
	why := p.Invalid
	if why == nil && s.synced {
		why = p.denied
	}
	if why == nil {
		s.reports.Clear(p.Key())
		return
	}
	s.reports.Put(p.Key(), enforce.InvalidPolicy{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Reason: why.Error()})
}
