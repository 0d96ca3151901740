// Package cluster holds the namespaces, pods and policies of a cluster, as they answer questions.
//
//	objects ─▶ Cluster (mutable) ─▶ View (what it holds now)
//	                                  Find       the pods and addresses that a text names (find, fit)
//	                                  Owner      the pod that owns an address, as a node sees it (address, ipowner)
//	                                  Selecting  NetworkPolicies that select a pod; Choosing: those of tiers (tiers)
//
//	c := cluster.New()
//	objects.Deliver(c)                         // a Cluster is a sink of sources
//	v := c.View()
//	ends, err := v.Find("shop/web")
//	owner := v.Owner(ends[0].Addr, "node1")    // as node1 sees it
//
// It does not evaluate flows, and does not know how the kernel enforces policies.
package cluster

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/policy/quota"
)

// Cluster is the objects of a cluster. Its methods may be called by several goroutines.
type Cluster struct {
	// LegacyNetpol gives policies the meaning that they had in Kubernetes 1.6. It must be set before the first View.
	LegacyNetpol bool

	mu         sync.Mutex // guards the fields below
	namespaces map[string]npc.Namespace
	pods       map[string]*npc.Pod        // namespace/name -> pod
	declared   map[string][]npc.NamedPort // namespace/name of a pod -> ports
	policies   map[string]*Policy         // namespace/name -> policy
	// clusterPolicies holds name -> policy.
	clusterPolicies map[string]*policy.Cluster
	// nodeAddrs holds the addresses of the nodes whose addresses are all known. booted holds the known times when nodes
	// were started.
	nodeAddrs  map[string]addrSet
	booted     map[string]time.Time
	nodes      map[string]npc.Node // as policies name them as peers
	unreadable npc.Unreadable
	learned    map[netip.Addr][]string
	learnedFor map[string]map[netip.Addr][]LearnedName
	view       *View // of the objects; nil since they last changed
}

// New returns a cluster without objects.
func New() *Cluster {
	return &Cluster{namespaces: map[string]npc.Namespace{}, pods: map[string]*npc.Pod{}, policies: map[string]*Policy{},
		declared: map[string][]npc.NamedPort{}, clusterPolicies: map[string]*policy.Cluster{}, nodeAddrs: map[string]addrSet{}, booted: map[string]time.Time{},
		nodes: map[string]npc.Node{}}
}

// Clone returns a cluster of the same objects that can be changed independently.
func (c *Cluster) Clone() *Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &Cluster{LegacyNetpol: c.LegacyNetpol,
		namespaces: maps.Clone(c.namespaces), pods: maps.Clone(c.pods), policies: maps.Clone(c.policies),
		declared:        maps.Clone(c.declared),
		clusterPolicies: maps.Clone(c.clusterPolicies), nodeAddrs: maps.Clone(c.nodeAddrs),
		booted: maps.Clone(c.booted), nodes: maps.Clone(c.nodes), unreadable: c.unreadable, learned: c.learned,
		learnedFor: c.learnedFor}
}

// SetLearned sets the domain names that addresses have, for all rules. It must not be changed afterwards.
func (c *Cluster) SetLearned(names map[netip.Addr][]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.learned, c.learnedFor, c.view = names, nil, nil
}

// SetLearnedFor sets the domain names that a node learned for addresses, by policy.NamesKey of the list that it learned
// them for. It must not be changed afterwards.
func (c *Cluster) SetLearnedFor(lists map[string]map[netip.Addr][]LearnedName) {
	all := map[netip.Addr][]string{}
	for _, list := range slices.Sorted(maps.Keys(lists)) {
		for a, names := range lists[list] {
			for _, l := range names {
				if !slices.Contains(all[a], l.Name) {
					all[a] = append(all[a], l.Name)
				}
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.learned, c.learnedFor, c.view = all, lists, nil
}

// View returns what the cluster holds now. The view does not change with the cluster.
func (c *Cluster) View() *View {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.view == nil {
		c.view = newView(c)
	}
	return c.view
}

func newView(c *Cluster) *View {
	v := &View{LegacyNetpol: c.LegacyNetpol, Unreadable: c.unreadable, Learned: c.learned, learnedFor: c.learnedFor,
		declared:   maps.Clone(c.declared),
		Namespaces: maps.Clone(c.namespaces), Pods: maps.Clone(c.pods), byNamespace: map[string][]*Policy{},
		nodeAddrs: maps.Clone(c.nodeAddrs), nodesAt: map[netip.Addr][]npc.Node{}, selecting: map[*npc.Pod][]*Policy{},
		choosing:        map[*npc.Pod][]*policy.Cluster{},
		ClusterPolicies: slices.SortedFunc(maps.Values(c.clusterPolicies), (*policy.Cluster).Compare)}
	for _, key := range slices.Sorted(maps.Keys(c.policies)) {
		p := c.policies[key]
		v.Policies = append(v.Policies, p)
		v.byNamespace[p.Namespace] = append(v.byNamespace[p.Namespace], p)
	}
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		for _, a := range c.nodes[name].Addrs {
			v.nodesAt[a] = append(v.nodesAt[a], c.nodes[name])
		}
	}
	for key, p := range v.Pods {
		if at, known := c.booted[p.Node]; known && p.ReportedBefore(at) {
			stale := *p
			stale.StaleAddrs = true
			v.Pods[key] = &stale
		}
	}
	v.indexAddrs()
	return v
}

// change runs a change of the objects.
func (c *Cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	c.view = nil
}

// remove removes an object, if it is there and has the UID.
func remove[T any](objects map[string]T, key string, uid types.UID, uidOf func(T) types.UID) {
	if o, ok := objects[key]; ok && (uid == "" || uidOf(o) == uid) {
		delete(objects, key)
	}
}

// SetNamespace adds or replaces a namespace.
func (c *Cluster) SetNamespace(n npc.Namespace) { c.change(func() { c.namespaces[n.Name] = n }) }

// DeleteNamespace removes a namespace. An empty UID stands for any, as in all Delete methods.
func (c *Cluster) DeleteNamespace(name string, uid types.UID) {
	c.change(func() { remove(c.namespaces, name, uid, func(n npc.Namespace) types.UID { return n.UID }) })
}

// SetPod adds or replaces a pod.
func (c *Cluster) SetPod(p npc.Pod) { c.change(func() { c.pods[p.Key()] = &p }) }

// SetDeclaredPorts sets all ports that a pod declares, also those without a name, which decide nothing.
func (c *Cluster) SetDeclaredPorts(namespace, name string, ports []npc.NamedPort) {
	if len(ports) > 0 {
		c.change(func() { c.declared[npc.ObjectKey(namespace, name)] = ports })
	}
}

// DeletePod removes a pod.
func (c *Cluster) DeletePod(namespace, name string, uid types.UID) {
	key := npc.ObjectKey(namespace, name)
	c.change(func() { remove(c.pods, key, uid, func(p *npc.Pod) types.UID { return p.UID }) })
}

// SetPolicy adds or replaces a policy. The object must not be changed afterwards.
func (c *Cluster) SetPolicy(o *networkingv1.NetworkPolicy) {
	p := &Policy{o.Namespace, o.Name, o.UID, policy.Compile(o, quota.Default())}
	p.Merged = [len(npc.Directions)][]policy.MergedRule{} // only the kernel needs them
	c.change(func() { c.policies[p.Key()] = p })
}

// DeletePolicy removes a policy.
func (c *Cluster) DeletePolicy(namespace, name string, uid types.UID) {
	key := npc.ObjectKey(namespace, name)
	c.change(func() { remove(c.policies, key, uid, func(p *Policy) types.UID { return p.UID }) })
}

// SetClusterPolicy adds or replaces a cluster network policy. The object must not be changed afterwards.
func (c *Cluster) SetClusterPolicy(o *v1alpha2.ClusterNetworkPolicy) {
	p := policy.CompileCluster(o)
	c.change(func() { c.clusterPolicies[p.Name] = &p })
}

// DeleteClusterPolicy removes a cluster network policy.
func (c *Cluster) DeleteClusterPolicy(name string, uid types.UID) {
	c.change(func() { remove(c.clusterPolicies, name, uid, func(p *policy.Cluster) types.UID { return p.UID }) })
}

// SetNode adds or replaces a Node, whose addresses policies may name as peers. What a node has itself is for
// SetNodeAddrs.
func (c *Cluster) SetNode(n npc.Node) { c.change(func() { c.nodes[n.Name] = n }) }

// DeleteNode removes a Node.
func (c *Cluster) DeleteNode(name string, uid types.UID) {
	c.change(func() { remove(c.nodes, name, uid, func(n npc.Node) types.UID { return n.UID }) })
}

// SetNodeAddrs replaces the addresses that a node has itself. Before that, a node has the addresses in the
// status.hostIPs of its pods.
func (c *Cluster) SetNodeAddrs(node string, addrs []netip.Addr) {
	c.change(func() { delete(c.nodeAddrs, node) })
	c.AddNodeAddrs(node, addrs)
}

// AddNodeAddrs adds addresses that a node has itself to those that were set or added before.
func (c *Cluster) AddNodeAddrs(node string, addrs []netip.Addr) {
	all := addrSet{}
	for _, a := range addrs {
		all[a] = struct{}{}
	}
	c.change(func() {
		maps.Copy(all, c.nodeAddrs[node])
		c.nodeAddrs[node] = all
	})
}

// SetBooted sets when a node was started, by its own clock. Statuses of its pods from before are stale.
func (c *Cluster) SetBooted(node string, at time.Time) { c.change(func() { c.booted[node] = at }) }

// SetUnreadable sets what could not be read. What depends on that is not known.
func (c *Cluster) SetUnreadable(u npc.Unreadable) { c.change(func() { c.unreadable = u }) }

// SetSynced does nothing: a cluster is read after all objects are fed to it.
func (c *Cluster) SetSynced() {}

// SetMissing does nothing, for the same reason.
func (c *Cluster) SetMissing(npc.Missing) {}

// SetConnected does nothing, for the same reason.
func (c *Cluster) SetConnected(string, bool) {}
