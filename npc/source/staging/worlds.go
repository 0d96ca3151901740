// This part of the package separates the staged policies of objects that were read once from those that are enforced,
// and applies them.
//
//	all := staging.Read(objects, staged.Namespaces)
//	all.Enforced                        // the objects without staged policies
//	would, err := all.In("rollout")     // as if the staged policies of a world were applied
//
// It does not judge anything, nor does it know what policies mean, except whether they can be understood.

package staging

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// Groups are objects and the worlds that their staged policies make.
type Groups struct {
	// Enforced are the objects without staged policies.
	Enforced snapshot.Objects
	// Staged are the staged policies, in order of their worlds, namespaces and names.
	Staged []Policy
	// Refused are the policies that are enforced though they have annotations about staging, with the reason.
	Refused []Notice
}

// Policy is a staged policy.
type Policy struct {
	staged.Change
	Key staged.Key
	// Problem is why the policy is not what its annotations ask for; empty if it is.
	Problem string

	// It is either of these.
	namespace *networkingv1.NetworkPolicy
	cluster   *v1alpha2.ClusterNetworkPolicy
}

// Read separates the staged policies of some objects, which must not be changed afterwards. Which kinds can be staged
// depends on the mode.
func Read(o snapshot.Objects, mode staged.Mode) *Groups {
	w := &Groups{Enforced: o}
	w.Enforced.Policies, w.Enforced.ClusterPolicies = nil, nil
	to := newStage()
	sink := New(enforced{Sink: to.rest, to: &w.Enforced}, Config{Mode: mode, Stage: to, Report: to.hear})
	for _, p := range o.Policies {
		sink.SetPolicy(p)
	}
	for _, p := range o.ClusterPolicies {
		sink.SetClusterPolicy(p)
	}
	sink.SetSynced()
	for _, p := range to.policies {
		p.Problem = to.problems[p.Key].Text
		delete(to.problems, p.Key)
		w.Staged = append(w.Staged, *p)
	}
	slices.SortFunc(w.Staged, func(p, q Policy) int { return cmp.Or(cmp.Compare(p.Group, q.Group), compare(p.Key, q.Key)) })
	for _, n := range to.problems {
		w.Refused = append(w.Refused, n)
	}
	slices.SortFunc(w.Refused, func(a, b Notice) int { return compare(a.Key, b.Key) })
	return w
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

// Names returns the names of the worlds, in order.
func (w *Groups) Names() (names []string) {
	for _, p := range w.Staged {
		names = append(names, p.Group)
	}
	return slices.Compact(names)
}

// In returns the objects as they would be if the staged policies of a world were applied: those that are added beside
// what is enforced, without what they take away.
func (w *Groups) In(group string) (snapshot.Objects, error) {
	switch names := w.Names(); {
	case len(names) == 0:
		return snapshot.Objects{}, errors.Errorf("there is no world %q: no policy is staged", group)
	case !slices.Contains(names, group):
		return snapshot.Objects{}, errors.Errorf("there is no world %q; give %s", group, strings.Join(names, " or "))
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
