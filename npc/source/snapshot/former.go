package snapshot

import (
	"fmt"
	"maps"

	"github.com/pkg/errors"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// Former returns the AdminNetworkPolicies and BaselineAdminNetworkPolicies of manifests as ClusterNetworkPolicies with
// the same meaning, in the order of their files and lines, and sentences about what is not read. It is an error if
// there are none, or if one of them cannot be converted.
func (m *Manifests) Former() (policies []*v1alpha2.ClusterNetworkPolicy, notes []string, err error) {
	o := m.options()
	o.Former = true
	result, err := m.parse(o.Parse)
	if err != nil {
		return nil, nil, err
	}
	problems := result.Problems
	first := map[string]position{} // by name: the kinds have separate names, what is made of them has not
	for _, f := range result.Files {
		maps.DeleteFunc(f.Ignored, func(kind string, _ manifest.Ignored) bool { return kind != manifest.Template })
		for _, o := range f.Objects {
			if was, ok := first[o.Name]; ok {
				problems = append(problems, manifest.Problem{Path: f.Path, Line: o.Line, Text: fmt.Sprintf(
					"%s: %s (%s:%d) makes a ClusterNetworkPolicy of the same name; rename one of them",
					o, was, was.path, was.Line)})
				continue
			}
			first[o.Name] = position{f.Path, o}
			policies = append(policies, o.Value.(*v1alpha2.ClusterNetworkPolicy))
		}
	}
	manifest.SortProblems(problems)
	if err := joined(problems); err != nil {
		return nil, nil, err
	}
	if len(policies) == 0 {
		return nil, nil, errors.Errorf("%s has no %s and no %s", spelling.Escape(m.path),
			manifest.KindAdminNetworkPolicy, manifest.KindBaselineAdminNetworkPolicy)
	}
	_, notes = unusedOf(result.Files)
	return policies, append(notes, result.Skipped...), nil
}
