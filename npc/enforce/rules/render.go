package rules

import (
	"strconv"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Rendered is a policy as the kernel is given it.
type Rendered struct {
	// Rules holds the rules of each direction.
	Rules [len(npc.Directions)][]RenderedRule
	// Sets holds the sets that the rules refer to, each once, and members of lists before the lists.
	Sets []Set
	// Users identify the rules of a cluster network policy by which the specifications of their sets name them.
	Users [len(npc.Directions)][]*RuleUser
}

// RenderedRule is one iptables rule of a policy.
type RenderedRule struct {
	Family npc.Family
	Match  string
	// Number is the number of the rule in the policy that it is for, from 1.
	Number int
	// Peer is the set that the rule asks for in addition to Rest, which is the rest of Match. It is nil if there is no
	// such set, or it cannot be one of several that a rule asks for together. That of a NetworkPolicy is of a selector,
	// and is not among the Sets of the policy.
	Peer *Set
	Rest string
}

// Equal reports whether another rule is the same.
func (r RenderedRule) Equal(s RenderedRule) bool {
	return r.Family == s.Family && r.Match == s.Match && r.Number == s.Number && r.Rest == s.Rest &&
		(r.Peer == nil) == (s.Peer == nil)
}

// With returns the match of the rule with another set in the place of Peer.
func (r RenderedRule) With(peers Set, d npc.Direction) string {
	return naming.Join(r.Rest, naming.Match(peers.Name(r.Family), d.Peer()))
}

// Render returns the iptables rules of a policy of a namespace, and the sets that they refer to. It changes nothing.
// lists reports whether the namespaces that a selector matches are few enough for a list of their sets.
func Render(p *policy.Policy, namespace, name string, lists func(labels.Selector) bool) Rendered {
	r := &renderer{target: &SelectorSpec{Scope: TargetScope, Namespace: namespace, Pods: p.Target.Selector}, name: name,
		lists: lists,
		known: map[string]Set{}}
	for _, d := range npc.Directions {
		for i, rule := range p.Merged[d] {
			r.add(d, i+1, rule)
		}
	}
	return r.out
}

// RenderCluster returns the iptables rules of a cluster network policy and the sets that they refer to. The rules do
// not ask whether a pod is the policy's subject. No other policy and no other rule uses the sets of pods.
func RenderCluster(p *policy.Cluster) Rendered {
	r := &renderer{name: p.Name, lists: func(labels.Selector) bool { return false }, known: map[string]Set{}}
	for _, d := range npc.Directions {
		repeats := map[string]int{}
		for i, rule := range p.Rules[d] {
			content := naming.Hash(append([]string{rule.Action.String()}, rule.Key()...)...)
			repeats[content]++
			id := naming.Hash("cluster", p.Tier.String(), p.Name, d.String(), content, strconv.Itoa(repeats[content]))
			r.user = &RuleUser{id, p.Tier, rule.Action}
			r.out.Users[d] = append(r.out.Users[d], r.user)
			r.add(d, i+1, rule.MergedRule)
		}
	}
	return r.out
}

// renderer renders one policy.
type renderer struct {
	// target is the target of a NetworkPolicy; nil for a cluster network policy.
	target *SelectorSpec
	name   string
	// user is the rule of a cluster network policy that is rendered.
	user  *RuleUser
	lists func(labels.Selector) bool
	out   Rendered
	// known holds the sets of out by their IDs.
	known map[string]Set
}

// add renders the rule of a number, from 1.
func (r *renderer) add(d npc.Direction, number int, rule policy.MergedRule) {
	peers := r.peers(rule)
	for _, f := range npc.Families {
		for _, m := range r.matches(d, f, rule, peers) {
			m.Number = number
			r.out.Rules[d] = append(r.out.Rules[d], m)
		}
	}
}

// peer is what a rule is matched with: a peer, several together, or any.
type peer struct {
	any bool
	// set is that of several peers, of blocks, of nodes, or of domain names; nil for pods.
	set  *Set
	pods SelectorSpec
}

// use returns the set of a specification, which the policy needs.
func (r *renderer) use(spec SetSpec) Set {
	switch s := spec.(type) {
	case SelectorSpec:
		s.User = r.user
		spec = s
	case NodesSpec:
		s.User = r.user
		spec = s
	}
	key := spec.key()
	id := naming.Hash(key...)
	s, ok := r.known[id]
	if !ok {
		s = newSet(spec, key, id)
		r.known[id] = s
		r.out.Sets = append(r.out.Sets, s)
	}
	return s
}

// peers returns the peers of a rule. Too many with too many ports become one list.
func (r *renderer) peers(rule policy.MergedRule) []peer {
	switch {
	case rule.AnyPeer:
		return []peer{{any: true}}
	case rule.Crosses():
		return []peer{{set: new(r.use(UnionSpec{Members: r.members(rule.Peers), Of: r.name}))}}
	}
	out := make([]peer, 0, len(rule.Peers))
	for _, p := range rule.Peers {
		spec := r.spec(p)
		if pods, is := spec.(SelectorSpec); is {
			out = append(out, peer{pods: pods})
		} else {
			out = append(out, peer{set: new(r.use(spec))})
		}
	}
	return out
}

// members returns the sets of peers that become one list. A list holds no lists.
func (r *renderer) members(peers []policy.MergedPeer) []Set {
	out := make([]Set, 0, len(peers))
	for _, p := range peers {
		spec := r.spec(p)
		if pods, is := spec.(SelectorSpec); is && pods.Scope == ListScope {
			pods.Scope = ClusterScope
			spec = pods
		}
		out = append(out, r.use(spec))
	}
	return out
}

// spec returns the specification of a peer's set.
func (r *renderer) spec(p policy.MergedPeer) SetSpec {
	switch {
	case p.Block != nil:
		return BlockSpec{p.Block}
	case p.Nodes != nil:
		return NodesSpec{Nodes: p.Nodes.Selector}
	case p.Names != nil:
		return NamesSpec{p.Names}
	}
	return r.selector(p)
}

// selector returns the selector of a peer that names pods.
func (r *renderer) selector(p policy.MergedPeer) SelectorSpec {
	if p.Namespaces == nil {
		return SelectorSpec{Scope: NamespaceScope, Namespace: p.Namespace, Pods: p.Pods.Selector}
	}
	spec := SelectorSpec{Scope: ClusterScope, Namespaces: labels.Everything(), Pods: p.Pods.Selector}
	if p.Namespaces.Selector != nil {
		spec.Namespaces = p.Namespaces.Selector
	}
	if spec.Pods == nil && r.lists(spec.Namespaces) {
		spec.Scope = ListScope
	}
	return spec
}

// matches returns the matches of a rule in a family: one for each of its peers with each of its ports.
func (r *renderer) matches(d npc.Direction, f npc.Family, rule policy.MergedRule, peers []peer) (out []RenderedRule) {
	ports := rule.Ports
	if rule.AnyPort {
		ports = []policy.MergedPorts{{}}
	}
	for _, p := range peers {
		if p.set != nil {
			if blocks, are := p.set.SetSpec.(BlockSpec); are && blocks.Family() != f {
				continue
			}
		}
		for _, port := range ports {
			m := RenderedRule{Family: f, Rest: r.rest(d, f, port)}
			if d == npc.Ingress || port.Name == "" {
				m.Peer = r.alone(p)
			}
			if m.Peer != nil {
				m.Match = m.With(*m.Peer, d)
			} else {
				m.Match = naming.Join(m.Rest, r.ofPeer(d, f, p, port))
			}
			out = append(out, m)
		}
	}
	return out
}

// protocolAndPorts returns the match for a protocol and its numbers of ports; empty for every protocol.
func protocolAndPorts(port policy.MergedPorts) string {
	if port.Protocol == 0 {
		return ""
	}
	return port.Match()
}

// alone returns the set of a peer that stands for all that the peer is, and that can be one of several that a rule asks
// for together; nil if there is none. For a NetworkPolicy these are the sets of pods, except those of whole namespaces,
// which may have so many members that they are not to be written again with each policy.
func (r *renderer) alone(p peer) *Set {
	switch {
	case r.target != nil && (p.any || p.set != nil),
		r.target != nil && p.pods.Pods == nil && p.pods.Scope != NamespaceScope:
		return nil
	case r.target != nil:
		return new(NewSet(p.pods))
	case p.any:
		return nil
	case p.set == nil:
		return new(r.use(p.pods))
	}
	if _, list := p.set.SetSpec.(UnionSpec); list {
		return nil
	}
	return p.set
}

// rest returns the part of a match that asks for all but the peer. Protocol and ports come first, because they cost
// least.
func (r *renderer) rest(d npc.Direction, f npc.Family, port policy.MergedPorts) string {
	target := SelectorSpec{Scope: ClusterScope}
	if r.target != nil {
		target = *r.target
	}
	first := protocolAndPorts(port)
	switch {
	case port.Name != "" && d == npc.Ingress:
		target.Port = NamedPort{port.Name, port.Protocol}
		return naming.Join(first, naming.Match(r.use(target).Name(f), "dst,dst"))
	case target.Pods != nil:
		return naming.Join(first, naming.Match(r.use(target).Name(f), d.Own()))
	}
	return first
}

// ofPeer returns the part of a match that asks for the peer, and for its port if that has a name. A list of namespaces
// comes last, because it costs most.
func (r *renderer) ofPeer(d npc.Direction, f npc.Family, p peer, port policy.MergedPorts) string {
	in := func(s Set, dir string) string { return naming.Match(s.Name(f), dir) }
	named := d == npc.Egress && port.Name != ""
	name := NamedPort{port.Name, port.Protocol}
	if p.any || p.set != nil {
		first := ""
		if named {
			first = in(r.use(SelectorSpec{Scope: ClusterScope, Port: name}), "dst,dst")
		}
		if p.any {
			return first
		}
		return naming.Join(first, in(*p.set, d.Peer()))
	}
	spec, dir := p.pods, d.Peer()
	if named {
		if spec.Scope == ListScope {
			spec.Scope = ClusterScope
		}
		spec.Port, dir = name, "dst,dst"
	}
	return in(r.use(spec), dir)
}
