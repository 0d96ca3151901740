package controller

import (
	"time"

	"github.com/weave-npc/weave-npc/npc/budget"
	"github.com/weave-npc/weave-npc/npc/queue"
)

// charge asks for room for a policy's rules, if it is not active yet and selects a local pod.
func (m *Controller) charge(p *policy) {
	if !p.active && len(p.selected) > 0 && p.cost.Rules > 0 {
		p.over = m.budget.Open(budget.Account{Namespace: p.namespace, Name: p.name, Created: p.created, Cost: p.cost})
	}
}

// refund gives back what charge asked for.
func (m *Controller) refund(p *policy) {
	m.budget.Close(p.namespace, p.name)
	if p.over != nil {
		p.over = nil
		m.reportInvalid(p)
	}
}

// settleBudget has the policies enforced for which there is room, the oldest first. It is to be called for changes of policies.
func (m *Controller) settleBudget() {
	if !m.synced {
		return // who is the oldest is not known
	}
	for _, v := range m.budget.Settle() {
		ns := m.namespaces[v.Namespace]
		p := ns.policies[v.Name]
		if v.Changed {
			p = m.renew(ns, p, v.Denied)
		}
		p.over = v.Denied
		m.reportInvalid(p)
	}
}

// settleBudgetLater is settleBudget for changes of pods, with which rules must not change that are others'.
func (m *Controller) settleBudgetLater() {
	if m.synced && m.budget.Stale() {
		m.later.Put(queue.Event{Kind: queue.Policies, Key: "budget", Apply: m.settleBudget}, time.Now())
		m.wakeUp()
	}
}

// renew has an active policy's rules written anew; over is why there is no room for them, nil if there is.
func (m *Controller) renew(ns *namespace, p *policy, over error) *policy {
	again, owner := *p, *p.owner
	again.owner = &owner
	again.used, again.blocks, again.unions = map[*selector]struct{}{}, map[*block]struct{}{}, nil
	again.active, again.over = false, over
	ns.policies[p.name] = &again
	m.activate(ns, &again)
	m.deactivate(ns, p)
	m.share(ns)
	return &again
}
