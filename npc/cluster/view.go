package cluster

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// View is what a cluster held at one time. What it returns must not be changed. Its methods may be called by several
// goroutines.
type View struct {
	LegacyNetpol bool
	// Unreadable is what could not be read and is not among the rest, although it may exist.
	Unreadable npc.Unreadable
	Namespaces map[string]npc.Namespace
	Pods       map[string]*npc.Pod // namespace/name -> pod
	Policies   []*Policy           // ordered by namespace/name
	// ClusterPolicies are in the order of evaluation: by tier, priority and name. Those that decide nothing come last.
	ClusterPolicies []*policy.Cluster
	// Learned holds the domain names that an address has, for some rule at least; nil if that is not known.
	Learned map[netip.Addr][]string

	learnedFor  map[string]map[netip.Addr][]LearnedName // by list; nil if Learned is for all rules
	declared    map[string][]npc.NamedPort              // namespace/name of a pod -> ports
	byNamespace map[string][]*Policy                    // namespace -> its policies, in order
	claims      map[netip.Addr][]*npc.Pod
	stale       map[netip.Addr][]*npc.Pod // address -> pods whose status has it from before a restart
	nodeAddrs   map[string]addrSet        // node -> all its addresses, if they are known
	hostAddrs   map[string]addrSet        // node -> the addresses that its pods' status.hostIPs hold
	hostIPs     addrSet                   // all of hostAddrs
	ofNodes     addrSet                   // all of nodeAddrs and hostAddrs
	nodesAt     map[netip.Addr][]npc.Node // ordered by name

	mu        sync.Mutex             // guards the fields below
	selecting map[*npc.Pod][]*Policy // pod -> the policies that select it, in order; filled on demand
	choosing  map[*npc.Pod][]*policy.Cluster
}

// DeclaredPorts returns all ports that a pod declares, as a snapshot has them; a daemon does not keep them.
func DeclaredPorts(v *View, pod string) []npc.NamedPort { return v.declared[pod] }

type addrSet map[netip.Addr]struct{}

func (s addrSet) has(a netip.Addr) bool {
	_, ok := s[a]
	return ok
}

// Policy is a compiled policy with the name of its object.
type Policy struct {
	Namespace, Name string
	UID             types.UID
	policy.Policy
}

// Assume returns a view with some more namespaces, and with these pods instead of those that are there. Its policies
// and Nodes are the same.
func (v *View) Assume(namespaces []npc.Namespace, pods []*npc.Pod) *View {
	w := &View{LegacyNetpol: v.LegacyNetpol, Learned: v.Learned, learnedFor: v.learnedFor, Namespaces: v.Namespaces,
		Pods: make(map[string]*npc.Pod, len(pods)), Policies: v.Policies,
		ClusterPolicies: v.ClusterPolicies, byNamespace: v.byNamespace, nodeAddrs: v.nodeAddrs, nodesAt: v.nodesAt,
		selecting: map[*npc.Pod][]*Policy{}, choosing: map[*npc.Pod][]*policy.Cluster{}}
	if len(namespaces) > 0 {
		w.Namespaces = maps.Clone(v.Namespaces)
		for _, n := range namespaces {
			w.Namespaces[n.Name] = n
		}
	}
	for _, p := range pods {
		w.Pods[p.Key()] = p
	}
	w.indexAddrs()
	return w
}

// WithLearned returns the same view with domain names of addresses.
func WithLearned(v *View, names map[netip.Addr][]string) *View {
	w := v.Assume(nil, slices.Collect(maps.Values(v.Pods)))
	w.Learned, w.learnedFor, w.Unreadable, w.declared = names, nil, v.Unreadable, v.declared
	return w
}

// LearnedName is a domain name that an address has.
type LearnedName struct {
	Name string
	// Seconds is how long the address still counts; 0 if that is not known.
	Seconds int
}

// NameAt returns the domain name of a peer that an address has; the zero value if it has none.
func NameAt(v *View, p policy.Peer, a netip.Addr) LearnedName {
	if v.learnedFor != nil {
		names := v.learnedFor[p.List][a]
		if i := slices.IndexFunc(names, func(l LearnedName) bool { return p.HasName(l.Name) }); i >= 0 {
			return names[i]
		}
	} else if i := slices.IndexFunc(v.Learned[a], p.HasName); i >= 0 {
		return LearnedName{Name: v.Learned[a][i]}
	}
	return LearnedName{}
}

// Key returns namespace/name.
func (p *Policy) Key() string { return npc.ObjectKey(p.Namespace, p.Name) }

// Selecting returns the policies that select a pod, in order.
func (v *View) Selecting(p *npc.Pod) []*Policy {
	v.mu.Lock()
	defer v.mu.Unlock()
	out, ok := v.selecting[p]
	if ok {
		return out
	}
	for _, q := range v.byNamespace[p.Namespace] {
		if q.Target.SelectsPod(p) {
			out = append(out, q)
		}
	}
	v.selecting[p] = out
	return out
}

// Isolating returns the policies whose rules count for a pod in a direction, in order, and whether the pod is isolated.
// With LegacyNetpol a namespace isolates, and policies only allow. A pod whose labels are not known is isolated by all
// policies that may select it, and cluster network policies leave it no rules.
func (v *View) Isolating(p *npc.Pod, d npc.Direction) (policies []*Policy, isolated bool) {
	for _, q := range v.Selecting(p) {
		if q.Isolates[d] {
			policies = append(policies, q)
		}
	}
	if v.LegacyNetpol {
		return policies, d == npc.Ingress && v.Namespaces[p.Namespace].DefaultDeny
	}
	if p.Unlabelled && len(v.ClusterPolicies) > 0 {
		return nil, true
	}
	return policies, len(policies) > 0 || p.Unlabelled && slices.ContainsFunc(v.byNamespace[p.Namespace],
		func(q *Policy) bool { return q.Isolates[d] })
}
