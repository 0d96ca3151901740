package staging

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// Groups are objects and the groups of their staged policies.
type Groups struct {
	// Enforced are the objects without staged policies.
	Enforced snapshot.Objects
	// Staged are the staged policies, in order of their groups, namespaces and names.
	Staged []StagedPolicy
	// Refused are the policies that are enforced though they have annotations about staging, with the reason.
	Refused []StagedPolicy
}

// StagedPolicy is a policy with annotations about staging.
type StagedPolicy struct {
	staged.Status

	// It is either of these.
	namespace *networkingv1.NetworkPolicy
	cluster   *v1alpha2.ClusterNetworkPolicy
}

// Read separates the staged policies of some objects, which must not be changed afterwards. Which kinds can be staged
// depends on the mode.
func Read(o snapshot.Objects, mode staged.Mode) *Groups {
	w := &Groups{Enforced: o}
	w.Enforced.Policies, w.Enforced.ClusterPolicies = nil, nil
	enforced := map[staged.Key]bool{}
	var annotated []StagedPolicy
	isEnforced := func(p StagedPolicy) bool {
		if p.Annotated() {
			annotated = append(annotated, p)
		}
		enforced[p.Key] = !p.Staged
		return !p.Staged
	}
	for _, p := range o.Policies {
		key := staged.Key{Namespace: p.Namespace, Name: p.Name}
		if isEnforced(StagedPolicy{Status: mode.Status(key, p.Annotations), namespace: p}) {
			w.Enforced.Policies = append(w.Enforced.Policies, p)
		}
	}
	for _, p := range o.ClusterPolicies {
		if isEnforced(StagedPolicy{Status: mode.Status(staged.Key{Name: p.Name}, p.Annotations), cluster: p}) {
			w.Enforced.ClusterPolicies = append(w.Enforced.ClusterPolicies, p)
		}
	}
	for _, p := range annotated {
		_, fault := p.effect()
		if p.Problem = p.Wrong(fault, func(taken staged.Key) bool { return enforced[taken] }); p.Staged {
			w.Staged = append(w.Staged, p)
		} else {
			w.Refused = append(w.Refused, p)
		}
	}
	slices.SortFunc(w.Staged, func(p, q StagedPolicy) int {
		return cmp.Or(cmp.Compare(p.Group, q.Group), compare(p.Key, q.Key))
	})
	slices.SortFunc(w.Refused, func(p, q StagedPolicy) int { return compare(p.Key, q.Key) })
	return w
}

// effect returns whether a policy does anything to its group, and what is wrong with its rules.
func (p *StagedPolicy) effect() (effect bool, fault string) {
	if p.cluster != nil {
		compiled := policy.CompileCluster(p.cluster)
		return p.Effect(compiled.Invalid, compiled.Inert)
	}
	return p.Effect(policy.Compile(p.namespace, quota.Default()).Invalid, true)
}

func compare(a, b staged.Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Annotated returns how many policies would be staged if all kinds could be.
func Annotated(o snapshot.Objects) (n int) {
	for _, p := range o.Policies {
		if _, is, _ := staged.Read(p.Annotations); is {
			n++
		}
	}
	for _, p := range o.ClusterPolicies {
		if _, is, _ := staged.Read(p.Annotations); is {
			n++
		}
	}
	return n
}

// Names returns the names of the groups, in order.
func (w *Groups) Names() (names []string) {
	for _, p := range w.Staged {
		names = append(names, p.Group)
	}
	return slices.Compact(names)
}

// In returns the objects as they would be if the staged policies of a group were applied: the enforced ones without
// those that the group takes away, and those that it adds.
func (w *Groups) In(group string) (snapshot.Objects, error) {
	switch names := w.Names(); {
	case len(names) == 0:
		return snapshot.Objects{}, errors.Errorf("there is no group %q: no policy is staged", group)
	case !slices.Contains(names, group):
		return snapshot.Objects{}, errors.Errorf("there is no group %q; give %s", group, strings.Join(names, " or "))
	}
	o, taken := w.Enforced, map[staged.Key]bool{}
	o.Policies, o.ClusterPolicies = nil, nil
	for i := range w.Staged {
		p := &w.Staged[i]
		if effect, _ := p.effect(); p.Group != group || !effect {
			continue
		}
		taken[staged.Key{Namespace: p.Key.Namespace, Name: p.Takes}] = true
		switch {
		case !p.Adds:
		case p.cluster != nil:
			o.ClusterPolicies = append(o.ClusterPolicies, p.cluster)
		default:
			o.Policies = append(o.Policies, p.namespace)
		}
	}
	for _, p := range w.Enforced.Policies {
		if !taken[staged.Key{Namespace: p.Namespace, Name: p.Name}] {
			o.Policies = append(o.Policies, p)
		}
	}
	for _, p := range w.Enforced.ClusterPolicies {
		if !taken[staged.Key{Name: p.Name}] {
			o.ClusterPolicies = append(o.ClusterPolicies, p)
		}
	}
	return o, nil
}
