package check

import (
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/check/expectation"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// side is the sources or the destinations of an expectation.
type side struct {
	*Prover
	subject expectation.Subject
	// outside is set if the side is all pods and addresses that are not the subject's.
	outside bool
	// direction is that of the policies that apply to these pods.
	direction npc.Direction
	// likes holds for each name in the subject the selectors of pods that count as those of that name. It counts if
	// outside is set.
	likes  map[string][]labels.Selector
	scopes []scope
	// rules are those that may apply to the pods.
	rules []*policy.Rule
}

// scope is the pods of a side that could be in one namespace: with any labels, or such as those of some that are there.
type scope struct {
	namespace string
	any       bool
	templates []*npc.Pod
}

func (p *Prover) newSide(s expectation.Subject, outside bool, d npc.Direction) *side {
	x := &side{Prover: p, subject: s, outside: outside, direction: d, likes: map[string][]labels.Selector{}}
	for _, t := range s {
		if t.Name == "" {
			continue
		}
		for _, q := range p.templates(t) {
			if like := p.like(q); like != nil {
				x.likes[t.Namespace+"/"+t.Name] = append(x.likes[t.Namespace+"/"+t.Name], like)
			}
		}
	}
	x.findScopes()
	x.findRules()
	return x
}

// templates returns a pod of each kind of those that a term names.
func (p *Prover) templates(t expectation.Term) (out []*npc.Pod) {
	known := map[string]bool{}
	for _, c := range p.classes {
		if named(t, c.pod) {
			if key := p.podKey(c.pod); !known[key] {
				known[key] = true
				out = append(out, c.pod)
			}
		}
	}
	return out
}

// named reports whether a term names a pod or its workload.
func named(t expectation.Term, q *npc.Pod) bool {
	if t.Name == "" || t.Namespace != q.Namespace {
		return false
	}
	w := q.Workload
	return t.Name == q.Name && (t.Kind == "" || t.Kind == flow.KindPod) ||
		w != nil && t.Name == w.Name && (t.Kind == "" || t.Kind == w.Kind)
}

// like returns a selector of the pods that count as replicas of a pod: those with its labels that policies name or, if
// these name none of them, with all of its labels. It is nil if the pod has no labels.
func (p *Prover) like(q *npc.Pod) labels.Selector {
	of := labels.Set{}
	for k, v := range q.Labels {
		if p.policyKeys[k] {
			of[k] = v
		}
	}
	if len(of) == 0 {
		of = maps.Clone(q.Labels)
	}
	if len(of) == 0 {
		return nil
	}
	return labels.SelectorFromValidatedSet(of)
}

// has reports whether a pod with an address is one of the side's, or an address if the pod is nil. There is set for an
// existing pod.
func (x *side) has(q *npc.Pod, a netip.Addr, there bool) bool {
	return slices.ContainsFunc(x.subject, func(t expectation.Term) bool {
		return x.inTerm(t, q, a, there)
	}) != x.outside
}

func (x *side) inTerm(t expectation.Term, q *npc.Pod, a netip.Addr, there bool) bool {
	switch {
	case t.All:
		return true
	case len(t.Blocks) > 0:
		return inBlocks(t.Blocks, a)
	case q == nil:
		return false
	case t.Name != "" && there:
		return named(t, q)
	case t.Name != "":
		return x.outside && q.Namespace == t.Namespace &&
			slices.ContainsFunc(x.likes[t.Namespace+"/"+t.Name], func(s labels.Selector) bool {
				return s.Matches(labels.Set(q.Labels))
			})
	}
	return x.inNamespace(t, q.Namespace) && t.Pods.Matches(q.Labels)
}

// inNamespace reports whether a term is about pods of a namespace.
func (x *side) inNamespace(t expectation.Term, namespace string) bool {
	if t.Namespace != "" {
		return t.Namespace == namespace
	}
	return t.Namespaces.Selector == nil || slices.Contains(x.namespacesOf(t.Namespaces), namespace)
}

// findScopes finds the namespaces that pods of the side may be in.
func (x *side) findScopes() {
	for _, name := range x.namespaces {
		s := scope{namespace: name, any: x.outside}
		for _, t := range x.subject {
			switch {
			case t.Name == "":
				s.any = s.any || t.All || len(t.Blocks) > 0 || x.inNamespace(t, name)
			case t.Namespace == name && !x.outside:
				s.templates = append(s.templates, x.templates(t)...)
			}
		}
		if s.any || len(s.templates) > 0 {
			x.scopes = append(x.scopes, s)
		}
	}
}

// findRules finds the rules that may apply to pods of the side.
func (x *side) findRules() {
	seen := map[*policy.Cluster]bool{}
	for _, s := range x.scopes {
		for _, q := range x.policies[s.namespace] {
			if !q.Isolates[x.direction] || !s.mayMatch(q.Target) {
				continue
			}
			for i := range q.Rules[x.direction] {
				x.rules = append(x.rules, &q.Rules[x.direction][i])
			}
		}
		for _, q := range x.tiers[s.namespace] {
			if seen[q] || !s.mayMatch(q.Pods) {
				continue
			}
			seen[q] = true
			for i := range q.Written[x.direction] {
				x.rules = append(x.rules, &q.Written[x.direction][i].Rule)
			}
		}
	}
}

// mayMatch reports whether a selector may match pods of the scope.
func (s scope) mayMatch(selector policy.Selector) bool {
	return s.any || slices.ContainsFunc(s.templates, func(q *npc.Pod) bool { return selector.Matches(q.Labels) })
}

// blocks returns the blocks that distinguish addresses: those of rules and of the subject, the ranges of pods, and the
// free ranges.
func (x *side) blocks(rules []*policy.Rule) []ipblock.Block {
	out := slices.Concat(x.ruleBlocks(rules), x.ranges, nowhere())
	if x.direction == npc.Ingress {
		for _, a := range x.domains {
			out = append(out, ipblock.Block{CIDR: netip.PrefixFrom(a, a.BitLen())})
		}
	}
	return out
}

// ruleBlocks returns the blocks of the side's subject, and those of the rules whose peers the side's pods are.
func (x *side) ruleBlocks(rules []*policy.Rule) []ipblock.Block {
	out := policy.Blocks(slices.Values(rules))
	for _, t := range x.subject {
		out = append(out, t.Blocks...)
	}
	return out
}

// podPlaces returns places of pods that could be there.
func (x *side) podPlaces(peerRules []*policy.Rule) []place {
	return x.places(x.blocks(peerRules), func(a netip.Addr) bool {
		return inBlocks(x.ranges, a) && !inBlocks(nowhere(), a)
	})
}

// selectors returns for each namespace of a scope the selectors that distinguish labels of its pods, without those that
// match everything or nothing.
func (x *side) selectors(rules []*policy.Rule) map[string]*selectors {
	out := map[string]*selectors{}
	for _, s := range x.scopes {
		if s.any {
			out[s.namespace] = &selectors{seen: map[string]bool{}}
		}
	}
	type pair struct{ namespaces, pods string }
	seen := map[pair]bool{}
	for _, r := range rules {
		for _, peer := range r.Peers {
			switch {
			case peer.Pods == nil:
			case peer.Namespaces == nil:
				out[peer.Namespace].add(*peer.Pods)
			default:
				key := pair{peer.Namespaces.String(), peer.Pods.String()}
				if seen[key] {
					continue
				}
				seen[key] = true
				for _, name := range x.namespacesOf(*peer.Namespaces) {
					out[name].add(*peer.Pods)
				}
			}
		}
	}
	for name, of := range out {
		x.addOwn(name, of)
	}
	return out
}

// addOwn adds the selectors of the policies that apply to pods of a namespace, and those of the subject.
func (x *side) addOwn(namespace string, of *selectors) {
	for _, q := range x.policies[namespace] {
		if q.Isolates[x.direction] {
			of.add(q.Target)
		}
	}
	for _, q := range x.tiers[namespace] {
		if len(q.Written[x.direction]) > 0 {
			of.add(q.Pods)
		}
	}
	for _, t := range x.subject {
		switch {
		case t.Name == "":
			of.add(t.Pods)
		case x.outside && t.Namespace == namespace:
			for _, like := range x.likes[t.Namespace+"/"+t.Name] {
				of.add(policy.Selector{Selector: like})
			}
		}
	}
}

// selectors are selectors of pods, each once.
type selectors struct {
	seen  map[string]bool
	texts []string
	all   []labels.Selector
}

// add adds a selector. Nil selectors take none.
func (s *selectors) add(of policy.Selector) {
	if s == nil || of.Selector == nil {
		return
	}
	if _, possible := of.Unmet(nil); !possible {
		return
	}
	if text := of.String(); !s.seen[text] {
		s.seen[text] = true
		s.texts, s.all = append(s.texts, text), append(s.all, of.Selector)
	}
}
