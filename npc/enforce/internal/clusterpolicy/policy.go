package clusterpolicy

import (
	"fmt"
	"reflect"

	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Policy is a compiled ClusterNetworkPolicy. What it means does not change.
type Policy struct {
	policy.Cluster
	// id identifies the policy as long as its tier and its subject stay: an edit of both these and the rules is a
	// deletion and a creation.
	id string
	// evaluated holds the rules as package verdict evaluates them, once they were asked for.
	evaluated [len(npc.Directions)][]*verdict.NamedRule
}

// Compile returns the policy of an API object, which must not be changed afterwards.
func Compile(o *v1alpha2.ClusterNetworkPolicy) *Policy {
	p := &Policy{Cluster: policy.CompileCluster(o)}
	p.Written = [len(npc.Directions)][]policy.WrittenRule{} // only those who explain need them
	p.id = naming.Hash(p.Name, string(p.UID), p.Tier.String(), p.Namespaces.String(), p.Pods.String())
	return p
}

// same reports whether another policy of the name means the same in the same words.
func (p *Policy) same(q *Policy) bool {
	return p.id == q.id && p.Priority == q.Priority && p.Inert == q.Inert && reflect.DeepEqual(p.Rules, q.Rules) &&
		fmt.Sprint(p.Invalid) == fmt.Sprint(q.Invalid)
}

// Evaluated returns the policy's rules in a direction, as package verdict evaluates them. They are the same each time.
func (p *Policy) Evaluated(d npc.Direction) []*verdict.NamedRule {
	if p.evaluated[d] == nil {
		for i, r := range p.Rules[d] {
			p.evaluated[d] = append(p.evaluated[d], &verdict.NamedRule{MergedRule: r.MergedRule, Action: r.Action,
				Of: p.Tier, By: verdict.By{Tier: p.Tier.String(), Policy: p.Name, Number: i + 1}})
		}
	}
	return p.evaluated[d]
}

// Selects reports whether a pod is the policy's subject.
func (p *Policy) Selects(q *index.Pod) bool {
	return q.Local() && !p.Inert && q.InNamespaces(p.Namespaces) && q.SelectedBy(p.Pods)
}

// enforced is a policy on this node. An edit makes another one.
type enforced struct {
	*Policy
	// owner stands for the policy in sets.
	owner *dataplane.Owner
	// selected are the local pods that the policy selects. Without any the policy is not active.
	selected map[*index.Pod]struct{}
	active   bool
	// rendered are the rules of an active policy, and sets those that they refer to.
	rendered rules.Rendered
	sets     index.Provisioned
}

func newEnforced(p *Policy) *enforced {
	return &enforced{Policy: p, owner: &dataplane.Owner{Name: p.Name, UID: p.UID}, selected: map[*index.Pod]struct{}{}}
}

// before orders policies as they are asked.
func before(p, q *enforced) int { return p.Compare(&q.Cluster) }

// about describes a rule, by its number from 1.
func (p *enforced) about(d npc.Direction, number int) string {
	text := fmt.Sprintf("%s policy %s rule %d", p.Tier, p.Name, number)
	if name := p.Rules[d][number-1].Name; name != "" {
		text += " " + name
	}
	return text
}
