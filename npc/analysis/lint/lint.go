// Package lint finds what is probably wrong with policies.
//
//	for _, f := range lint.Run(objects, view, network) {
//		// shop.yaml 12 warning selects no pod; did you mean app=web? selects-nothing
//		fmt.Println(f.File, f.Line, f.Level, f.Message, f.Rule)
//	}
//
//	rules                               the list of rules, with their levels
//	linter                              holds objects and findings; Run calls the checks in order
//	policy, peer, port                  checks of one NetworkPolicy; clusterpolicy, domainname of the others
//	dns                                 which pods may ask DNS servers
//	service                             which Services policies close to clients outside, or to the controllers of
//	                                    Ingresses and HTTPRoutes
//	cover                               what another policy or rule makes superfluous, by within
//	typo                                names that are nearly those of something else
//	pods                                the pods that policies are about, in groups
//
// What a finding claims holds for the existing objects: removing a policy that selects no pod, or a rule that others
// cover, changes no verdict. What is not sure is not claimed. A policy silences rules by an annotation,
// ignoreAnnotation. The package does not know how findings are printed.
package lint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// ignoreAnnotation has the IDs of rules, divided by commas, that are not applied to the policy that has the annotation.
const ignoreAnnotation = "weave-npc/ignore"

// Run returns the findings about objects, in the order of their files and lines. The view must be of the same objects,
// and the network of the same cluster.
func Run(o snapshot.Objects, view *cluster.View, n snapshot.Network) []Finding {
	l := &linter{Objects: o, pods: newPods(o, view), ignored: map[subject]map[string]bool{}, missing: map[string]bool{},
		clusterIPs: clusterIPs(n.Services)}
	for _, u := range o.Unused {
		l.found = append(l.found, Finding{Rule: kindNotEnforced.ID, Level: kindNotEnforced.Level, Message: u.Message(),
			File: u.Path, Line: u.Line})
	}
	l.readAnnotations()
	l.checkNamespaces()
	compiled := map[string]*cluster.Policy{}
	for _, p := range view.Policies {
		compiled[p.Key()] = p
	}
	for _, p := range o.Policies {
		if c := compiled[p.Namespace+"/"+p.Name]; c != nil {
			l.checkPolicy(p, c)
		}
	}
	l.checkCovered()
	l.checkClusterPolicies()
	checkServices(l, n)
	slices.SortStableFunc(l.found, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
			strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name), strings.Compare(a.Rule, b.Rule), strings.Compare(a.Message, b.Message))
	})
	return l.found
}

// readAnnotations reads which rules the policies silence, and looks for annotations that are not understood.
func (l *linter) readAnnotations() {
	known := map[string]bool{}
	for _, r := range Rules() {
		known[r.ID] = true
	}
	read := func(m metav1.Object) {
		text, ok := m.GetAnnotations()[ignoreAnnotation]
		if !ok {
			return
		}
		s := policySubject(m)
		l.ignored[s] = map[string]bool{}
		for id := range strings.SplitSeq(text, ",") {
			if id = strings.TrimSpace(id); known[id] {
				l.ignored[s][id] = true
			} else {
				l.add(ignoreUnknown, s, "metadata.annotations",
					fmt.Sprintf("%s names %q, which is no rule%s", ignoreAnnotation, id,
						spelling.DidYouMean(id, maps.Keys(known))), "")
			}
		}
	}
	for _, p := range l.Policies {
		read(p)
		checkAnnotations(l, p)
	}
	for _, p := range l.ClusterPolicies {
		read(p)
		checkAnnotations(l, p)
	}
}

// checkAnnotations looks for annotations about staging whose value, or whose name, is nearly right.
func checkAnnotations(l *linter, m metav1.Object) {
	const field = "metadata.annotations"
	_, is, problem := staged.Read(m.GetAnnotations())
	if is && problem == "" && l.StagedEnforced {
		problem = staged.Annotation + " has no effect: nodes run without --staged, and enforce the policy"
	}
	if problem != "" {
		at := field
		if rest, ok := strings.CutPrefix(problem, staged.Annotation+" "); ok {
			at, problem = field+"."+staged.Annotation, rest
		}
		l.add(annotationUnclear, policySubject(m), at, problem, "")
	}
	known := []string{staged.Annotation, staged.ReplacesAnnotation, staged.RemovesAnnotation, ignoreAnnotation}
	for _, key := range slices.Sorted(maps.Keys(m.GetAnnotations())) {
		if strings.HasPrefix(key, "weave-npc/") && !slices.Contains(known, key) {
			l.add(annotationUnclear, policySubject(m), field+"."+key,
				"is no annotation of weave-npc"+spelling.DidYouMean(key, slices.Values(known)), "")
		}
	}
}

// checkNamespaces looks for namespaces that policies are in and that do not exist. Where no Namespace is among
// manifests, they are elsewhere.
func (l *linter) checkNamespaces() {
	declared := map[string]bool{}
	for _, n := range l.Namespaces {
		if path, _ := l.Positions.Of(manifest.KindNamespace, "", n.Name, ""); path != "" || l.Positions == nil {
			declared[n.Name] = true
		}
	}
	if len(declared) == 0 {
		return
	}
	for _, p := range l.Policies {
		n := p.Namespace
		if declared[n] || isOfTheSystem(n) || l.missing[n] {
			continue
		}
		l.missing[n] = true
		near, level := nearest(n, maps.Keys(declared)), Note
		if near != "" {
			level = Warning
		}
		l.addAs(level, missingNamespace, policySubject(p), "metadata.namespace",
			fmt.Sprintf("there is no Namespace %s%s", n, didYouMean(near)), "")
	}
}
