// Package controller computes the desired ipsets and iptables chains of the node from namespaces, pods and network
// policies, and plans the transactions that reconcile the kernel with them.
//
//	source ──Set, Delete──▶ Controller ──Wake──▶ syncer ──Planner: Plan, Commit──▶ kernel
//
// A handler is a sequence: the index takes the fact, isolation and the fail-closed filter follow, pods are placed in
// the sets where they belong. The Controller has the only lock. It reads no API server and touches no kernel.
//
//	c := controller.New(enforce.Config{NodeName: "node1"})
//	c.SetPod(pod)                                 // as often as anything changes
//	<-c.Wake()                                    // there may be something to plan
//	for _, tx := range c.Planner().Plan(false, known) {
//		c.Planner().Commit(tx, apply(tx))
//	}
package controller

import (
	"maps"
	"net/netip"
	"sync"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/domainnames"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/clusterpolicy"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/networkpolicy"
)

// Controller takes objects as they are, in any order and any number of times, and queues those that have to wait for a
// plan to be carried out. Nothing in it fails. Its methods may be called by several goroutines.
type Controller struct {
	wake wake

	mu        sync.Mutex // guards the fields below, except what newState sets for good: config and limits
	state     *state
	evaluator evaluator
	changes   changes
}

// New returns a Controller that knows no object.
func New(config enforce.Config) *Controller {
	s := newState(config)
	return &Controller{wake: make(wake, 1), state: s, evaluator: newEvaluator(s)}
}

// ResolversOf returns the addresses of the resolvers whose answers count on some node; none if no policy has domain
// names.
func ResolversOf(c *Controller) []netip.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return clusterpolicy.ResolversOf(c.state.tiers)
}

// NamesOf returns what the learner of domain names shares with a controller.
func NamesOf(c *Controller) *domainnames.Names { return c.state.names }

// Wake receives when there may be something to plan. Bursts of changes make it receive once.
func (c *Controller) Wake() <-chan struct{} { return c.wake }

// wake receives when there may be something to plan.
type wake chan struct{}

func (w wake) send() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// change applies an event, or queues it.
func (c *Controller) change(e queuedChange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changeLocked(e)
}

// changeLocked applies an event, or queues it. The caller has the lock.
func (c *Controller) changeLocked(e queuedChange) {
	switch {
	case !c.state.synced:
		c.apply(e)
		c.changes.batch = e.Kind
	case c.changes.mustWait(e) || c.state.unfinished():
		c.changes.queue(e)
	default:
		c.apply(e)
		if e.Kind == podChanges && !c.changes.any() && !c.state.stale() {
			return
		}
		c.changes.add(e)
	}
	c.wake.send()
}

// apply applies an event. What it leaves of the budget is for a plan of its own: with pods, rules must not change that
// are others'.
func (c *Controller) apply(e queuedChange) {
	e.Apply()
	c.evaluator.forget()
	c.state.edited = c.state.edited || e.Kind == policyChanges
	if e.Kind == podChanges && c.state.isolation.BudgetStale() {
		c.changes.reconcileLater()
		c.wake.send()
	}
}

// SetPod takes a pod as it now is.
func (c *Controller) SetPod(p npc.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changeLocked(queuedChange{Kind: podChanges, Key: "pod/" + npc.ObjectKey(p.Namespace, p.Name), UID: p.UID,
		Weight: c.state.weight(&p),
		Apply:  func() { c.state.setPod(p) }})
}

// DeletePod removes a pod. One of that name with another UID is another pod; an empty UID stands for whichever is
// there.
func (c *Controller) DeletePod(namespace, name string, uid types.UID) {
	c.change(queuedChange{Kind: podChanges, Key: "pod/" + npc.ObjectKey(namespace, name), UID: uid,
		Ends: true, Weight: 1,
		Apply: func() { c.state.deletePod(namespace, name, uid) }})
}

// SetPolicy takes a policy as it now is. The object must not be changed afterwards.
func (c *Controller) SetPolicy(o *networkingv1.NetworkPolicy) {
	p := networkpolicy.Compile(o, c.state.limits)
	c.change(queuedChange{Kind: policyChanges, Key: "policy/" + npc.ObjectKey(o.Namespace, o.Name), UID: o.UID,
		Namespace: o.Namespace, Weight: p.Cost.Weight(),
		Apply: func() { c.state.setPolicy(p) }})
}

// DeletePolicy removes a policy. One of that name with another UID is another policy; an empty UID stands for whichever
// is there.
func (c *Controller) DeletePolicy(namespace, name string, uid types.UID) {
	c.change(queuedChange{Kind: policyChanges, Key: "policy/" + npc.ObjectKey(namespace, name), UID: uid,
		Namespace: namespace, Ends: true, Weight: 1,
		Apply: func() { c.state.deletePolicy(namespace, name, uid) }})
}

// SetClusterPolicy takes a cluster network policy as it now is. The object must not be changed afterwards. Changes of
// these policies have plans of their own: what one may have dropped in between is little, but not what two have.
func (c *Controller) SetClusterPolicy(o *v1alpha2.ClusterNetworkPolicy) {
	p := clusterpolicy.Compile(o)
	c.change(queuedChange{Kind: policyChanges, Key: "cluster-policy/" + o.Name, UID: o.UID, Weight: maxWeight,
		Apply: func() { c.state.tiers.SetPolicy(p); c.state.follow(index.Change{}) }})
}

// DeleteClusterPolicy removes a cluster network policy. One of that name with another UID is another policy; an empty
// UID stands for whichever is there.
func (c *Controller) DeleteClusterPolicy(name string, uid types.UID) {
	c.change(queuedChange{Kind: policyChanges, Key: "cluster-policy/" + name, UID: uid, Ends: true, Weight: maxWeight,
		Apply: func() { c.state.tiers.DeletePolicy(name, uid); c.state.follow(index.Change{}) }})
}

// SetNamespace takes a namespace as it now is.
func (c *Controller) SetNamespace(n npc.Namespace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changeLocked(queuedChange{Kind: podChanges, Key: "namespace/" + n.Name, UID: n.UID,
		Weight: c.state.weight(nil),
		Apply:  func() { c.state.followNamespace(n.Name, c.state.index.SetNamespace(n)) }})
}

// DeleteNamespace removes a namespace. Its pods and policies are removed by themselves.
func (c *Controller) DeleteNamespace(name string, uid types.UID) {
	c.change(queuedChange{Kind: podChanges, Key: "namespace/" + name, UID: uid, Ends: true, Weight: 1,
		Apply: func() { c.state.followNamespace(name, c.state.index.DeleteNamespace(name, uid)) }})
}

// SetNode takes a Node as it now is. Its addresses are those of peers, nothing else: see SetNodeAddrs for this node's.
func (c *Controller) SetNode(n npc.Node) {
	c.changeNode(queuedChange{Key: "node/" + n.Name, UID: n.UID, Apply: func() { c.state.index.SetNode(n) }})
}

// DeleteNode removes a Node. One of that name with another UID is another Node; an empty UID stands for whichever is
// there.
func (c *Controller) DeleteNode(name string, uid types.UID) {
	c.changeNode(queuedChange{Key: "node/" + name, UID: uid, Ends: true,
		Apply: func() { c.state.index.DeleteNode(name, uid) }})
}

// changeNode applies an event of a Node, or queues it. As long as no rule asks for Nodes, the kernel needs none of it,
// and it need not wait: a policy that comes after it must not be enforced before it, as if there were no Nodes. Else it
// has a plan of its own, as cluster network policies have, and comes after those that wait: Nodes are deleted when the
// last policy is gone that names any.
func (c *Controller) changeNode(e queuedChange) {
	e.Kind, e.Weight = policyChanges, maxWeight
	c.mu.Lock()
	asked := c.state.index.AsksForNodes() || c.changes.later.Pending(e.Key)
	if !asked {
		e.Apply()
		c.evaluator.forget()
	}
	c.mu.Unlock()
	if asked {
		c.change(e)
	}
}

// SetNodeAddrs replaces the addresses that this node has itself, which no pod can own.
func (c *Controller) SetNodeAddrs(addrs []netip.Addr) {
	c.change(queuedChange{Kind: podChanges, Key: "node-addresses", Apply: func() { c.state.setNodeAddrs(addrs) }})
}

// SetRanges takes the node's own ranges of pod addresses, once they are known. Ranges that the operator gave come
// before them.
func (c *Controller) SetRanges(ranges []netip.Prefix) {
	c.change(queuedChange{Kind: podChanges, Key: "ranges", Apply: func() { c.state.setRanges(ranges) }})
}

// SetUnlisted replaces the addresses that the kernel has behind the ports of local pods -> the pod's UID. In the
// directions that the pod is isolated in, those are closed that no object lists, until one does or they are no longer
// given; at most 16 of a pod. What was closed before a restart stays so if this is called before SetSynced.
func (c *Controller) SetUnlisted(addrs map[netip.Addr]types.UID) {
	addrs = maps.Clone(addrs)
	c.change(queuedChange{Kind: podChanges, Key: "unlisted", Apply: func() { c.state.failClosed.SetUnlisted(addrs) }})
}

// SetUplinks sets the ports of the pods' bridge that connect to other nodes; iptables must take each name for one
// interface, not for a pattern. Behind are the prefixes that the node routes through them, here those that are on the
// bridge after all: the longest prefix that contains an address counts.
func (c *Controller) SetUplinks(ports []string, behind, here []netip.Prefix) {
	c.change(queuedChange{Kind: podChanges, Key: "uplinks", Apply: func() { c.state.setUplinks(ports, behind, here) }})
}

// Synced reports whether SetSynced was called.
func (c *Controller) Synced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.synced
}

// SetSynced records that all objects are known that there were at the start.
func (c *Controller) SetSynced() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.setSynced()
	c.evaluator.forget()
	c.changes.restart()
	c.wake.send()
}

// SetMissing records what of the input is missing. What the kernel holds for it stays.
func (c *Controller) SetMissing(what npc.Missing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.input.lacks = what
	c.wake.send()
}

// SetConnected records whether the watch of a kind of objects works.
func (c *Controller) SetConnected(kind string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.failClosed.Watches.Set(kind, ok, c.state.now()) {
		c.wake.send()
	}
}
