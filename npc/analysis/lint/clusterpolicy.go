package lint

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/source/manifest"
)

// tierPolicy is a ClusterNetworkPolicy with the pods that are its subject.
type tierPolicy struct {
	*policy.Cluster
	written  *v1alpha2.ClusterNetworkPolicy
	subjects []*group
}

func (p *tierPolicy) subject() subject { return subject{manifest.KindClusterNetworkPolicy, "", p.Name} }

// checkClusterPolicies checks the ClusterNetworkPolicies, in evaluation order.
func (l *linter) checkClusterPolicies() {
	written := map[string]*v1alpha2.ClusterNetworkPolicy{}
	for _, p := range l.ClusterPolicies {
		written[p.Name] = p
	}
	r := newRelation(l.view)
	var before []*tierPolicy
	for _, c := range l.view.ClusterPolicies {
		p := &tierPolicy{Cluster: c, written: written[c.Name]}
		if p.written == nil {
			continue
		}
		if c.Invalid != nil {
			l.add(invalidPolicy, p.subject(), "spec", c.Invalid.Error(), "")
		}
		if c.Inert {
			continue
		}
		l.checkSubject(p)
		for _, d := range npc.Directions {
			l.checkTierRules(p, d)
			l.checkUnreachable(r, before, p, d)
		}
		checkLearned(l, p)
		l.checkPriority(before, p)
		before = append(before, p)
	}
}

// checkSubject looks for the pods that are a policy's subject.
func (l *linter) checkSubject(p *tierPolicy) {
	p.subjects = l.selected("", &p.Namespaces, p.Pods)
	field, namespaces := "spec.subject.namespaces", p.written.Spec.Subject.Namespaces
	var choose *metav1.LabelSelector
	found := l.namespaceTypos(field, namespaces)
	if pods := p.written.Spec.Subject.Pods; pods != nil {
		field, choose = "spec.subject.pods", &pods.PodSelector
		found = append(l.namespaceTypos(field+".namespaceSelector", &pods.NamespaceSelector),
			l.podTypos(field+".podSelector", choose, "", &p.Namespaces)...)
	}
	if len(p.subjects) > 0 || l.elsewhere() {
		l.addTypos(p.subject(), found)
		return
	}
	level := Warning
	if len(found) == 0 && l.Positions != nil { // the pods may be in other manifests
		level = Note
	}
	text := "no pod is in a namespace with " + selectorText(p.Namespaces)
	if choose != nil {
		text = fmt.Sprintf("no pod has %s in a namespace with %s", selectorText(p.Pods), selectorText(p.Namespaces))
	}
	l.addAs(level, selectsNothing, p.subject(), field, text+suggestions(found), "")
}

// checkTierRules checks the rules of a direction one by one.
func (l *linter) checkTierRules(p *tierPolicy, d npc.Direction) {
	for i, r := range p.Written[d] {
		if r.Invalid != nil {
			continue
		}
		field := fmt.Sprintf("spec.%s[%d]", d, i)
		if p.Tier == policy.Baseline && r.Action == policy.Pass {
			l.add(passInBaseline, p.subject(), field, "passes to no tier, which allows", "")
		}
		l.checkTierPeers(p, d, i, field)
		receivers := l.receivers(r.Rule, d, p.subjects)
		for j, port := range r.Ports {
			if port.Name != "" && len(receivers) > 0 {
				l.checkPortName(p.subject(), fmt.Sprintf("%s.protocols[%d]", field, j), port, receivers)
			}
		}
	}
}

// checkTierPeers looks for the pods and addresses that the peers of a rule match.
func (l *linter) checkTierPeers(p *tierPolicy, d npc.Direction, i int, field string) {
	at := 0 // in the compiled peers, where each network is one
	next := func() policy.Peer { at++; return p.Written[d][i].Peers[at-1] }
	check := func(field string, namespaces *metav1.LabelSelector, pods *v1alpha2.NamespacedPod) {
		if pods != nil {
			l.checkPods(p.subject(), field+".pods", next(), &pods.NamespaceSelector, &pods.PodSelector)
		} else {
			l.checkPods(p.subject(), field, next(), namespaces, nil)
		}
	}
	if d == npc.Ingress {
		for j, from := range p.written.Spec.Ingress[i].From {
			check(fmt.Sprintf("%s.from[%d]", field, j), from.Namespaces, from.Pods)
		}
		return
	}
	for j, to := range p.written.Spec.Egress[i].To {
		field := fmt.Sprintf("%s.to[%d]", field, j)
		switch {
		case to.Nodes != nil:
			next()
		case len(to.DomainNames) > 0:
			for n := range to.DomainNames {
				checkName(l, p.subject(), fmt.Sprintf("%s.domainNames[%d]", field, n), next().Name)
			}
		case len(to.Networks) > 0:
			for n := range to.Networks {
				l.checkBlock(p.subject(), fmt.Sprintf("%s.networks[%d]", field, n), *next().Block, nil)
			}
		default:
			check(field, to.Namespaces, to.Pods)
		}
	}
}

// checkUnreachable looks for rules of a direction all of whose matches rules match that are asked before. Which of two
// policies of one priority is asked first is not defined by the API, so that none of them comes before the other.
func (l *linter) checkUnreachable(r *relation, before []*tierPolicy, p *tierPolicy, d npc.Direction) {
	var earlier []*policy.Rule
	names := map[*policy.Rule]string{}
	add := func(q *tierPolicy, i int) {
		rule := &q.Written[d][i].Rule
		names[rule] = fmt.Sprintf("%s[%d] of %s", d, i, q.Name)
		earlier = append(earlier, rule)
	}
	for _, q := range before {
		if q.Tier == p.Tier && q.Priority < p.Priority && r.selectorWithin(&p.Namespaces, &q.Namespaces) &&
			r.selectorWithin(&p.Pods, &q.Pods) {
			for i := range q.Written[d] {
				add(q, i)
			}
		}
	}
	for i := range p.Written[d] {
		if by := r.covered(&p.Written[d][i].Rule, earlier, nil); len(by) > 0 {
			var all []string
			for _, rule := range by {
				all = append(all, names[rule])
			}
			slices.Sort(all)
			l.add(ruleUnreachable, p.subject(), fmt.Sprintf("spec.%s[%d]", d, i),
				"is never asked: before it comes "+spelling.List(all), "")
		}
		add(p, i)
	}
}

// checkPriority looks for a policy of the same tier and priority that does otherwise with the same connections.
func (l *linter) checkPriority(before []*tierPolicy, p *tierPolicy) {
	for _, q := range before {
		if q.Tier != p.Tier || q.Priority != p.Priority || !share(p.subjects, q.subjects) {
			continue
		}
		for _, d := range npc.Directions {
			for i := range p.Written[d] {
				for j := range q.Written[d] {
					if a, b := &p.Written[d][i], &q.Written[d][j]; a.Action != b.Action && l.meet(&a.Rule, &b.Rule) {
						l.add(samePriority, p.subject(), "spec.priority",
							fmt.Sprintf("%s has it too, and does %s with %s[%d] where this does %s with %s[%d]",
								q.Name, b.Action, d, j, a.Action, d, i), "")
						return
					}
				}
			}
		}
	}
}

func share(a, b []*group) bool {
	return slices.ContainsFunc(a, func(g *group) bool { return slices.Contains(b, g) })
}

// meet reports whether two rules match the same connections of pods, or addresses, that there are.
func (l *pods) meet(a, b *policy.Rule) bool {
	portsMeet := len(a.Ports) == 0 || len(b.Ports) == 0 || slices.ContainsFunc(a.Ports, func(p policy.Port) bool {
		return slices.ContainsFunc(b.Ports, func(q policy.Port) bool { return portWithin(p, q) || portWithin(q, p) })
	})
	if !portsMeet {
		return false
	}
	for _, p := range a.Peers {
		for _, q := range b.Peers {
			if p.Block != nil && q.Block != nil && p.Block.CIDR.Overlaps(q.Block.CIDR) ||
				share(l.peerGroups(p), l.peerGroups(q)) {
				return true
			}
		}
	}
	return false
}
