package controller

import (
	"fmt"
	"reflect"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/budget"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/objectkey"
	compiled "github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/queue"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// policy is a NetworkPolicy as it was compiled. An edit makes another one.
type policy struct {
	namespace, name string
	uid             types.UID
	// owner stands for the policy in the rules.
	owner *dataplane.Owner
	// target chooses the pods that the policy isolates.
	target compiled.Selector
	// targetKey is the target as text; equal ones choose the same pods.
	targetKey string
	isolates  [len(traffic.Directions)]bool
	rules     [len(traffic.Directions)][]compiled.MergedRule
	created   time.Time
	// cost is what the rules come to.
	cost budget.Cost
	// invalid is why the policy allows nothing, if it could not be compiled; over why, if there is no room for its rules.
	invalid, over error
	// selected are the local pods that the target chooses. Without any the policy is not active.
	selected map[*pod]struct{}
	active   bool
	// used are the selectors and blocks that are provisioned for the policy while it is active, and
	// renders what its rules come to.
	used    map[*selector]struct{}
	blocks  map[*block]struct{}
	unions  []*union
	renders [len(traffic.Directions)][]rendering
}

func (p *policy) key() string { return objectkey.Of(p.namespace, p.name) }

// same reports whether another policy of the name means the same in the same words.
func (p *policy) same(q *policy) bool {
	return p.uid == q.uid && p.isolates == q.isolates && reflect.DeepEqual(p.target, q.target) && reflect.DeepEqual(p.rules, q.rules) &&
		fmt.Sprint(p.invalid) == fmt.Sprint(q.invalid)
}

// newPolicy returns the policy that an API object stands for.
func newPolicy(o *networkingv1.NetworkPolicy, limits budget.Limits) *policy {
	c := compiled.Compile(o, limits)
	p := &policy{namespace: o.Namespace, name: o.Name, uid: o.UID, created: o.CreationTimestamp.Time,
		owner: &dataplane.Owner{Namespace: o.Namespace, Name: o.Name, UID: o.UID}, target: c.Target, isolates: c.Isolates,
		rules: c.Merged, cost: c.Cost, invalid: c.Invalid,
		selected: map[*pod]struct{}{}, used: map[*selector]struct{}{}, blocks: map[*block]struct{}{}}
	if p.target.Selector != nil {
		p.targetKey = p.target.Selector.String()
	}
	return p
}

// SetPolicy takes a policy as it now is. The object must not be changed afterwards.
func (m *Controller) SetPolicy(o *networkingv1.NetworkPolicy) {
	p := newPolicy(o, m.budget.Limits)
	m.change(queue.Event{Kind: queue.Policies, Key: "policy/" + objectkey.Of(o.Namespace, o.Name), UID: o.UID, Weight: p.cost.Weight(), Apply: func() {
		ns := m.namespace(o.Namespace)
		old := ns.policies[o.Name]
		if old != nil && old.same(p) {
			return
		}
		if ns.policies[o.Name] = p; old == nil {
			m.policyCount++
		}
		m.replacePolicy(ns, old, p)
		m.reportInvalid(ns.policies[o.Name])
	}})
}

// DeletePolicy removes a policy.
func (m *Controller) DeletePolicy(namespace, name string, uid types.UID) {
	m.change(queue.Event{Kind: queue.Policies, Key: "policy/" + objectkey.Of(namespace, name), UID: uid, Ends: true, Weight: 1, Apply: func() {
		ns := m.namespaces[namespace]
		if ns == nil || ns.policies[name] == nil || uid != "" && ns.policies[name].uid != uid {
			return
		}
		old := ns.policies[name]
		delete(ns.policies, name)
		m.policyCount--
		m.replacePolicy(ns, old, nil)
		delete(m.invalid, old.key())
		m.releaseNamespace(namespace)
	}})
}

// replacePolicy puts a policy in the place of another; either may be nil. What both use stays.
func (m *Controller) replacePolicy(ns *namespace, old, p *policy) {
	if old != nil {
		m.budget.Close(ns.Name, old.name)
	}
	if p != nil {
		for q := range ns.local {
			if p.target.Chooses(&q.labels) {
				p.selected[q] = struct{}{}
			}
		}
		m.charge(p)
		m.activate(ns, p)
	}
	if old != nil {
		m.deactivate(ns, old)
	}
	m.share(ns)
	for q := range ns.local {
		m.reisolate(q)
	}
	m.settleBudget()
}

// selectPod finds the policies that select a pod, after its labels or its being local changed.
func (m *Controller) selectPod(q *pod) {
	for _, p := range q.ns.policies {
		_, was := p.selected[q]
		switch is := q.local && p.target.Chooses(&q.labels); {
		case is && !was:
			p.selected[q] = struct{}{}
			m.charge(p)
			m.activate(q.ns, p)
		case was && !is:
			delete(p.selected, q)
			if len(p.selected) == 0 {
				m.refund(p)
				m.deactivate(q.ns, p)
			}
		}
	}
	if !q.local {
		q.parts = [len(traffic.Directions)]*part{}
	}
	m.share(q.ns)
	m.isolated(q)
	m.settleBudgetLater()
}

// isolated finds the directions in which a pod is isolated, and reports whether they changed.
func (m *Controller) isolated(q *pod) bool {
	var is [len(traffic.Directions)]bool
	switch {
	case !q.local:
	case m.LegacyNetpol:
		is[traffic.Ingress] = q.ns.DefaultDeny
	default:
		for _, p := range q.ns.policies {
			if _, ok := p.selected[q]; ok {
				for d := range traffic.Directions {
					is[d] = is[d] || p.isolates[d]
				}
			}
		}
	}
	changed := is != q.isolated
	for d := range traffic.Directions {
		if is[d] && !q.isolated[d] {
			m.isolatedPods[d]++
		} else if q.isolated[d] && !is[d] {
			m.isolatedPods[d]--
		}
	}
	q.isolated = is
	return changed
}

func (m *Controller) reisolate(q *pod) {
	if m.isolated(q) {
		m.place(q)
	}
}

// isolate brings the isolation of a namespace's local pods up to date.
func (m *Controller) isolate(ns *namespace) {
	for q := range ns.local {
		m.reisolate(q)
	}
}

// reportInvalid remembers that a policy is invalid, to be reported once, or that it is mended.
func (m *Controller) reportInvalid(p *policy) {
	why := p.invalid
	if why == nil && m.synced {
		why = p.over
	}
	if why == nil {
		delete(m.invalid, p.key())
		delete(m.unreported, p.key())
		return
	}
	report := npc.InvalidPolicy{Namespace: p.namespace, Name: p.name, UID: p.uid, Reason: why.Error()}
	if m.invalid[p.key()] != report {
		m.invalid[p.key()] = report
		m.unreported[p.key()] = report
	}
}
