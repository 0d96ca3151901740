package networkpolicy

import (
	"fmt"
	"reflect"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
)

// Policy is a compiled NetworkPolicy with its names. What it means does not change.
type Policy struct {
	policy.Policy
	Namespace, Name string
	UID             types.UID
	created         time.Time
	// targetKey is the target as text; equal ones choose the same pods.
	targetKey string
	// evaluated holds the rules as package verdict evaluates them, once they were asked for.
	evaluated [len(npc.Directions)][]*verdict.NamedRule
}

// Compile returns the policy of an API object, which must not be changed afterwards.
func Compile(o *networkingv1.NetworkPolicy, limits quota.Limits) *Policy {
	p := &Policy{Policy: policy.Compile(o, limits), Namespace: o.Namespace, Name: o.Name, UID: o.UID,
		created: o.CreationTimestamp.Time}
	p.Rules = [len(npc.Directions)][]policy.Rule{} // only the merged ones are enforced
	if p.Target.Selector != nil {
		p.targetKey = p.Target.Selector.String()
	}
	return p
}

// same reports whether another policy of the name means the same in the same words.
func (p *Policy) same(q *Policy) bool {
	return p.UID == q.UID && p.Isolates == q.Isolates && reflect.DeepEqual(p.Target, q.Target) &&
		reflect.DeepEqual(p.Merged, q.Merged) &&
		fmt.Sprint(p.Invalid) == fmt.Sprint(q.Invalid)
}

// Evaluated returns the policy's rules in a direction, as package verdict evaluates them. They are the same each time.
func (p *Policy) Evaluated(d npc.Direction) []*verdict.NamedRule {
	if p.evaluated[d] == nil {
		for i, r := range p.Merged[d] {
			p.evaluated[d] = append(p.evaluated[d],
				&verdict.NamedRule{MergedRule: r, By: verdict.By{Policy: p.Key(), Number: i + 1}})
		}
	}
	return p.evaluated[d]
}

// Key returns the policy's namespace/name.
func (p *Policy) Key() string { return npc.ObjectKey(p.Namespace, p.Name) }

// enforced is a policy on this node. An edit makes another one, and so does everything that has its rules written
// again.
type enforced struct {
	*Policy
	// owner stands for the policy in rules and sets.
	owner *dataplane.Owner
	// selected are the local pods that the target selects. Without any the policy is not active.
	selected map[*index.Pod]struct{}
	active   bool
	// denied is why there is no room for the policy's rules; nil if there is.
	denied error
	// rules are the rules of an active policy, and sets those that they refer to.
	rules [len(npc.Directions)][]rules.RenderedRule
	sets  index.Provisioned
}

func newEnforced(p *Policy, selected map[*index.Pod]struct{}) *enforced {
	return &enforced{Policy: p, owner: &dataplane.Owner{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		selected: selected}
}

// selects reports whether the policy's target selects a local pod.
func (p *enforced) selects(q *index.Pod) bool {
	_, ok := p.selected[q]
	return ok
}
