package npc

import (
	"fmt"
	"reflect"
	"time"

	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weave-npc/weave-npc/npc/budget"
	"github.com/weave-npc/weave-npc/npc/queue"
)

// policy is a NetworkPolicy as it was compiled. An edit makes another one.
type policy struct {
	namespace, name string
	uid             types.UID
	// target chooses the pods that the policy isolates.
	target choice
	// targetKey is the target as text; equal ones choose the same pods.
	targetKey string
	isolates  [len(directions)]bool
	rules     [len(directions)][]ruleSpec
	created   time.Time
	// cost is what the rules come to.
	cost budget.Cost
	// invalid says why the policy allows nothing, if it could not be compiled; over why, if there is no room for its rules.
	invalid, over error
	// selected are the local pods that the target chooses. Without any the policy is not active.
	selected map[*pod]struct{}
	active   bool
	// used are the selectors and blocks that are provisioned for the policy while it is active, and
	// renders what its rules come to.
	used    map[*selector]struct{}
	blocks  map[*block]struct{}
	unions  []*union
	renders [len(directions)][]rendering
}

func (p *policy) key() string { return p.namespace + "/" + p.name }

// choice is a label selector, of which it is known whether it can match anything.
type choice struct {
	labels.Selector // nil: everything
	nothing         bool
}

func (c choice) matches(l labels.Labels) bool {
	return !c.nothing && (c.Selector == nil || c.Matches(l))
}

// same says whether another policy of the name means the same in the same words.
func (p *policy) same(q *policy) bool {
	return p.uid == q.uid && p.isolates == q.isolates && reflect.DeepEqual(p.target, q.target) && reflect.DeepEqual(p.rules, q.rules) &&
		fmt.Sprint(p.invalid) == fmt.Sprint(q.invalid)
}

// compilePolicy makes a policy of an API object. One that is invalid isolates what it selects, or
// its whole namespace if its podSelector is what is wrong, and allows nothing.
func compilePolicy(o *networkingv1.NetworkPolicy, limits budget.Limits) *policy {
	p := &policy{namespace: o.Namespace, name: o.Name, uid: o.UID, created: o.CreationTimestamp.Time,
		selected: map[*pod]struct{}{}, used: map[*selector]struct{}{}, blocks: map[*block]struct{}{}}
	types := o.Spec.PolicyTypes
	if len(types) == 0 {
		p.isolates[Ingress] = true
		p.isolates[Egress] = len(o.Spec.Egress) > 0
	}
	for _, t := range types {
		switch t {
		case networkingv1.PolicyTypeIngress:
			p.isolates[Ingress] = true
		case networkingv1.PolicyTypeEgress:
			p.isolates[Egress] = true
		default:
			p.isolates = [len(directions)]bool{true, true} // whatever it was to mean, it was not to allow
			p.invalid = errors.Errorf("spec.policyTypes: %q is neither Ingress nor Egress", t)
		}
	}
	if err := p.compile(o); err != nil {
		p.invalid = err
	} else if err := limits.Check(p.needs()); err != nil {
		p.invalid = errors.Wrap(err, "spec")
	}
	if p.target.Selector != nil {
		p.targetKey = p.target.String()
	}
	if p.invalid != nil {
		p.rules = [len(directions)][]ruleSpec{}
	}
	p.cost = p.needs()
	return p
}

func (p *policy) compile(o *networkingv1.NetworkPolicy) (err error) {
	if p.target, err = compileSelector(&o.Spec.PodSelector); err != nil {
		p.target = choice{}
		return errors.Wrap(err, "spec.podSelector")
	}
	if p.isolates[Ingress] {
		for i, r := range o.Spec.Ingress {
			rule, err := compileRule(o.Namespace, r.From, r.Ports)
			if err != nil {
				return errors.Wrapf(err, "spec.ingress[%d]", i)
			}
			p.rules[Ingress] = append(p.rules[Ingress], rule)
		}
	}
	if p.isolates[Egress] {
		for i, r := range o.Spec.Egress {
			rule, err := compileRule(o.Namespace, r.To, r.Ports)
			if err != nil {
				return errors.Wrapf(err, "spec.egress[%d]", i)
			}
			p.rules[Egress] = append(p.rules[Egress], rule)
		}
	}
	return nil
}

// compileSelector makes a choice of a label selector. A value that no label can have matches
// nothing, as it would in the API; a key or an operator that cannot be is an error.
func compileSelector(s *metav1.LabelSelector) (choice, error) {
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
	var c choice
	for k, v := range s.MatchLabels {
		nothing, err := require(k, selection.Equals, []string{v})
		if err != nil {
			return choice{}, errors.Wrap(err, "matchLabels")
		}
		c.nothing = c.nothing || nothing
	}
	for i, e := range s.MatchExpressions {
		op, ok := operators[e.Operator]
		if !ok {
			return choice{}, errors.Errorf("matchExpressions[%d]: %q is no operator", i, e.Operator)
		}
		nothing, err := require(e.Key, op, e.Values)
		if err != nil {
			return choice{}, errors.Wrapf(err, "matchExpressions[%d]", i)
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

// SetPolicy takes a policy as it now is. The object must not be changed afterwards.
func (m *Model) SetPolicy(o *networkingv1.NetworkPolicy) {
	p := compilePolicy(o, m.budget.Limits)
	m.change(queue.Event{Kind: queue.Policies, Key: "policy/" + podKey(o.Namespace, o.Name), UID: o.UID, Weight: p.cost.Weight(), Apply: func() {
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

// DeletePolicy takes note that a policy is gone.
func (m *Model) DeletePolicy(namespace, name string, uid types.UID) {
	m.change(queue.Event{Kind: queue.Policies, Key: "policy/" + podKey(namespace, name), UID: uid, Ends: true, Weight: 1, Apply: func() {
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
func (m *Model) replacePolicy(ns *namespace, old, p *policy) {
	if old != nil {
		m.budget.Close(ns.Name, old.name)
	}
	if p != nil {
		for q := range ns.local {
			if p.target.matches(&q.labels) {
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
func (m *Model) selectPod(q *pod) {
	for _, p := range q.ns.policies {
		_, was := p.selected[q]
		switch is := q.local && p.target.matches(&q.labels); {
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
		q.parts = [len(directions)]*part{}
	}
	m.share(q.ns)
	m.isolated(q)
	m.settleBudgetLater()
}

// isolated finds the directions in which a pod is isolated, and says whether they changed.
func (m *Model) isolated(q *pod) bool {
	var is [len(directions)]bool
	switch {
	case !q.local:
	case m.LegacyNetpol:
		is[Ingress] = q.ns.DefaultDeny
	default:
		for _, p := range q.ns.policies {
			if _, ok := p.selected[q]; ok {
				for d := range directions {
					is[d] = is[d] || p.isolates[d]
				}
			}
		}
	}
	changed := is != q.isolated
	for d := range directions {
		if is[d] && !q.isolated[d] {
			m.isolatedPods[d]++
		} else if q.isolated[d] && !is[d] {
			m.isolatedPods[d]--
		}
	}
	q.isolated = is
	return changed
}

func (m *Model) reisolate(q *pod) {
	if m.isolated(q) {
		m.place(q)
	}
}

// isolate brings the isolation of a namespace's local pods up to date.
func (m *Model) isolate(ns *namespace) {
	for q := range ns.local {
		m.reisolate(q)
	}
}

// InvalidPolicy is a policy that is not enforced as it is meant.
type InvalidPolicy struct {
	Namespace, Name string
	UID             types.UID
	// Reason names the place in the object and what is wrong there, or what the kernel says.
	Reason string
	// Refused says that the kernel does not take something that the policy needs, which therefore is left out. Otherwise the
	// policy could not be compiled: it isolates its pods and allows nothing.
	Refused bool
}

// reportInvalid remembers that a policy is invalid, to be reported once, or that it is mended.
func (m *Model) reportInvalid(p *policy) {
	why := p.invalid
	if why == nil && m.synced {
		why = p.over
	}
	if why == nil {
		delete(m.invalid, p.key())
		delete(m.unreported, p.key())
		return
	}
	report := InvalidPolicy{Namespace: p.namespace, Name: p.name, UID: p.uid, Reason: why.Error()}
	if m.invalid[p.key()] != report {
		m.invalid[p.key()] = report
		m.unreported[p.key()] = report
	}
}
