package span

import (
	"fmt"
	"math"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/budget"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// rules is a policy: whom it selects, and whom it names.
type rules struct {
	// target selects pods, and cluster the namespaces of a ClusterNetworkPolicy's; it is nil for the policy's own.
	target  policy.Selector
	cluster *policy.Selector
	terms   []*term
	// nodes -> how many pods the policy selects there.
	nodes map[*node]int32
}

// isPort reports whether a port is the one that the term asks for.
func (t *term) isPort(p npc.NamedPort) bool { return p.Name == t.port && p.Protocol == t.protocol }

// unlimited has policies compiled that are too large for some agents: each has limits of its own.
func unlimited() budget.Limits {
	most := budget.Limit{Policy: math.MaxInt, Namespace: math.MaxInt, Node: math.MaxInt}
	return budget.Limits{Rules: most, Sets: most, Entries: most}
}

// SetPolicy takes a NetworkPolicy as it now is, enforced or staged. It must not be changed afterwards.
func (x *Spans) SetPolicy(o *networkingv1.NetworkPolicy) []Change {
	compiled := policy.Compile(o, unlimited())
	r := &rules{target: compiled.Target}
	for _, d := range traffic.Directions {
		for _, rule := range compiled.Merged[d] {
			r.name(x, d, rule)
		}
	}
	ns := x.namespace(o.Namespace)
	former := ns.policies[o.Name]
	ns.policies[o.Name] = r
	return x.replace(former, r, map[string]*namespace{ns.name: ns})
}

// DeletePolicy removes a NetworkPolicy.
func (x *Spans) DeletePolicy(in, name string) []Change {
	ns := x.namespaces[in]
	if ns == nil || ns.policies[name] == nil {
		return nil
	}
	former := ns.policies[name]
	delete(ns.policies, name)
	changes := x.replace(former, nil, map[string]*namespace{ns.name: ns})
	x.releaseNamespace(ns)
	return changes
}

// SetClusterPolicy takes a ClusterNetworkPolicy as it now is, enforced or staged. It must not be changed afterwards.
func (x *Spans) SetClusterPolicy(o *v1alpha2.ClusterNetworkPolicy) []Change {
	compiled := policy.CompileCluster(o)
	if compiled.Inert {
		return x.DeleteClusterPolicy(o.Name)
	}
	r := &rules{target: compiled.Pods, cluster: &compiled.Namespaces}
	for _, d := range traffic.Directions {
		for _, rule := range compiled.Rules[d] {
			r.name(x, d, rule.MergedRule)
		}
	}
	former := x.clusterPolicies[o.Name]
	x.clusterPolicies[o.Name] = r
	return x.replace(former, r, x.namespaces)
}

// DeleteClusterPolicy removes a ClusterNetworkPolicy.
func (x *Spans) DeleteClusterPolicy(name string) []Change {
	former := x.clusterPolicies[name]
	if former == nil {
		return nil
	}
	delete(x.clusterPolicies, name)
	return x.replace(former, nil, x.namespaces)
}

// name adds the terms of a rule to a policy: its peers that are pods, and the pods that have the named ports of what else it lets out to. Named
// ports of ingress are those of the pods that the policy selects.
func (r *rules) name(x *Spans, d traffic.Direction, rule policy.MergedRule) {
	others := rule.AnyPeer
	for _, peer := range rule.Peers {
		if peer.Block != nil || peer.Nodes != nil {
			others = true
			continue
		}
		s := spec{namespaces: peer.Namespaces, pods: peer.Pods}
		if peer.Namespaces == nil {
			s.namespace = peer.Namespace
		}
		r.terms = append(r.terms, x.term(s))
	}
	if !others || d == traffic.Ingress {
		return
	}
	for _, port := range rule.Ports {
		if port.Name != "" {
			r.terms = append(r.terms, x.term(spec{port: port.Name, protocol: port.Protocol}))
		}
	}
}

// replace puts a policy in the place of a former one; either may be nil. The pods of some namespaces may be selected.
func (x *Spans) replace(former, r *rules, in map[string]*namespace) []Change {
	for _, ns := range in {
		for _, p := range ns.pods {
			if former != nil {
				p.drop(former)
			}
			if r != nil && p.subject && p.node != nil {
				r.choose(x, p)
			}
		}
	}
	if former != nil {
		for n := range former.nodes {
			former.need(x, n, -1)
		}
	}
	changes := x.settle()
	if former != nil {
		for _, t := range former.terms {
			t.release(x)
		}
	}
	return changes
}

// drop takes a policy from those that select a pod.
func (p *pod) drop(r *rules) {
	for i := range p.rules {
		if p.rules[i] == r {
			p.rules = append(p.rules[:i:i], p.rules[i+1:]...)
			return
		}
	}
}

// choose adds a policy to those of a pod that is on a node, if it selects the pod.
func (r *rules) choose(x *Spans, p *pod) {
	if r.cluster != nil && !p.ns.in(*r.cluster) || !r.target.Chooses(&p.labels) {
		return
	}
	p.rules = append(p.rules, r)
	r.use(x, p.node, +1)
}

// use counts the pods of a node that a policy selects.
func (r *rules) use(x *Spans, n *node, by int32) {
	if r.nodes == nil {
		r.nodes = map[*node]int32{}
	}
	was := r.nodes[n]
	if r.nodes[n] = was + by; was+by == 0 {
		delete(r.nodes, n)
	}
	if (was > 0) != (was+by > 0) {
		r.need(x, n, by)
	}
}

// need counts the policies of a node that use each of a policy's terms.
func (r *rules) need(x *Spans, n *node, by int32) {
	for _, t := range r.terms {
		was := n.terms[t]
		if n.terms[t] = was + by; was+by == 0 {
			delete(n.terms, t)
		}
		if (was > 0) != (was+by > 0) {
			if t.moved == nil {
				x.turn.terms = append(x.turn.terms, t)
			}
			t.moved.set(n.id)
		}
	}
}

// spec is what a term matches: the pods of a namespace, or of the namespaces that a selector chooses, or of all.
type spec struct {
	namespace  string
	namespaces *policy.Selector
	pods       policy.Selector
	// port is the name of a port that the pods have to have; empty for none.
	port     string
	protocol uint8
}

func (s spec) key() string {
	spaces := "-"
	if s.namespaces != nil {
		spaces = fmt.Sprintf("%q", s.namespaces.String())
	}
	return fmt.Sprintf("%s %s %q %s %d", s.namespace, spaces, s.pods.String(), s.port, s.protocol)
}

// selector returns what the pods' labels are matched by; nil for everything.
func (s spec) selector() labels.Selector { return s.pods.Selector }

// term is a selector of pods that policies use.
type term struct {
	spec
	spaces *spaces // nil if the pods are those of one namespace, or of all
	// users is how many policies use the term.
	users   int
	members map[*pod]struct{}
	// nodes are those on which a policy that uses the term selects a pod. While changes settle, was are those before, if they are others.
	nodes, was bits
	// moved are the nodes that may need the term that did not, or no longer.
	moved bits
}

// spaces are the namespaces that a selector chooses, found once for all terms that ask for it.
type spaces struct {
	policy.Selector
	matched map[*namespace]struct{}
	users   int
}

// matches reports whether the term chooses a pod.
func (t *term) matches(p *pod) bool {
	if t.spaces != nil {
		if _, in := t.spaces.matched[p.ns]; !in {
			return false
		}
	}
	if t.port != "" && !slices.ContainsFunc(p.ports, t.isPort) {
		return false
	}
	return t.pods.Chooses(&p.labels)
}

// term makes a policy a user of a term, which is made if need be.
func (x *Spans) term(s spec) *term {
	key := s.key()
	t := x.terms[key]
	if t == nil {
		t = &term{spec: s, members: map[*pod]struct{}{}}
		x.terms[key] = t
		t.fill(x)
	}
	t.users++
	return t
}

// fill puts what a new term matches into it, and the term where pods will find it.
func (t *term) fill(x *Spans) {
	if t.namespaces != nil {
		t.spaces = x.spacesOf(*t.namespaces)
	}
	add := func(ns *namespace) {
		for _, p := range ns.pods {
			if t.matches(p) {
				t.members[p] = struct{}{}
				p.terms = append(p.terms, t)
			}
		}
	}
	if t.namespace != "" {
		ns := x.namespace(t.namespace)
		ns.terms.Add(t, t.selector())
		add(ns)
		return
	}
	x.cluster.Add(t, t.selector())
	if t.spaces != nil {
		for ns := range t.spaces.matched {
			add(ns)
		}
		return
	}
	for _, ns := range x.namespaces {
		add(ns)
	}
}

// spacesOf makes a term a user of the namespaces that a selector chooses.
func (x *Spans) spacesOf(s policy.Selector) *spaces {
	key := s.String()
	found := x.spaces[key]
	if found == nil {
		found = &spaces{Selector: s, matched: map[*namespace]struct{}{}}
		for _, ns := range x.namespaces {
			if ns.in(s) {
				found.matched[ns] = struct{}{}
			}
		}
		x.spaces[key] = found
	}
	found.users++
	return found
}

// release ends a policy's use of a term that no node needs for it any more.
func (t *term) release(x *Spans) {
	if t.users--; t.users > 0 {
		return
	}
	delete(x.terms, t.key())
	for p := range t.members {
		if i := slices.Index(p.terms, t); i >= 0 {
			p.terms = slices.Delete(p.terms, i, i+1)
		}
	}
	if t.spaces != nil {
		if t.spaces.users--; t.spaces.users == 0 {
			delete(x.spaces, t.spaces.String())
		}
	}
	if t.namespace == "" {
		x.cluster.Remove(t, t.selector())
		return
	}
	ns := x.namespaces[t.namespace]
	ns.terms.Remove(t, t.selector())
	x.releaseNamespace(ns)
}
