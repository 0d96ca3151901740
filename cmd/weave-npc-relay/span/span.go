// Package span computes which pods the agent of each node needs: the node's own, those that the policies of these can name, and those that claim the
// address of one of them.
//
//	x := span.New()
//	changes := x.SetPolicy(policy)        // the pods that enter spans by it, then those that leave some
//	for node := range x.Nodes(changes[0]) // whom the first of them is for
//	objects := x.Snapshot("node1")
//
// A pod is named by a policy if a selector of its peers matches, or a rule for egress asks for the name of one of its ports and not for pods. What
// policies select, enforced or staged, is found as npc/policy compiles it. For each selector in use the nodes that need it are a set of bits, so
// that whom a pod is for is the union of some such sets, and nothing is counted for each pod and node.
//
// The package only computes. What it returns is for the nodes that are watched.
package span

import (
	"iter"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/labelset"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Spans are the spans of all nodes. It is not safe for several goroutines.
type Spans struct {
	namespaces map[string]*namespace
	nodes      map[string]*node
	byID       []*node // nil for a number that is free
	watched    bits
	pods       int

	terms map[string]*term // by what they match
	// cluster are the terms that choose pods of several namespaces, and spaces what they choose those with, by its text.
	cluster         labelset.Selectors[*term]
	spaces          map[string]*spaces
	clusterPolicies map[string]*rules

	addresses addresses
	interner  labelset.Interner
	turn      turn
	scratch   [2]bits // to compare whom a pod is for
	round     uint64  // the number of the last collection
}

// New returns spans of no pods.
func New() *Spans {
	return &Spans{namespaces: map[string]*namespace{}, nodes: map[string]*node{}, terms: map[string]*term{}, spaces: map[string]*spaces{},
		clusterPolicies: map[string]*rules{}, addresses: newAddresses()}
}

// Event is what becomes of a pod for some nodes.
type Event uint8

// The events.
const (
	// Enters: the pod is needed that was not before.
	Enters Event = iota
	// Changes: the pod has changed.
	Changes
	// Leaves: the pod exists, and is not needed any more.
	Leaves
	// Ends: the pod is deleted.
	Ends
)

// Change is an event of a pod, for the nodes that Spans.Nodes returns.
type Change struct {
	Event
	// Object is what the pod was set with, or deleted.
	Object any
	nodes  part
}

// Nodes returns the watched nodes that a change is for. It is to be asked before the next change.
func (x *Spans) Nodes(c Change) iter.Seq[string] {
	return func(yield func(string) bool) {
		for id := range c.nodes.all() {
			if !yield(x.byID[id].name) {
				return
			}
		}
	}
}

// Pods returns the number of pods.
func (x *Spans) Pods() int { return x.pods }

// Watch has changes returned that are for a node, until Unwatch is called as often.
func (x *Spans) Watch(name string) {
	n := x.node(name)
	n.watchers++
	x.watched.set(n.id)
}

// Unwatch ends a Watch.
func (x *Spans) Unwatch(name string) {
	n := x.node(name)
	if n.watchers--; n.watchers == 0 {
		x.watched.clear(n.id)
	}
	x.releaseNode(n)
}

// Snapshot returns the objects of the pods in the span of a node.
func (x *Spans) Snapshot(name string) []any {
	n := x.nodes[name]
	if n == nil {
		return nil
	}
	found := x.collect()
	for p := range n.pods {
		found.add(p)
	}
	for t := range n.terms {
		for p := range t.members {
			found.add(p)
		}
	}
	objects := make([]any, 0, len(found.pods))
	for _, p := range found.pods {
		objects = append(objects, p.object)
	}
	return objects
}

// namespace is the state of one namespace.
type namespace struct {
	name   string
	labels map[string]string
	// known is set once the namespace's own object has arrived; its pods may arrive before.
	known    bool
	pods     map[string]*pod   // name -> pod
	policies map[string]*rules // name -> policy
	terms    labelset.Selectors[*term]
}

// in reports whether a selector chooses the namespace; one whose object has not arrived is never chosen.
func (ns *namespace) in(s policy.Selector) bool { return ns.known && s.Matches(ns.labels) }

func (x *Spans) namespace(name string) *namespace {
	ns := x.namespaces[name]
	if ns == nil {
		ns = &namespace{name: name, pods: map[string]*pod{}, policies: map[string]*rules{}}
		x.namespaces[name] = ns
	}
	return ns
}

// releaseNamespace forgets a namespace in which nothing is left.
func (x *Spans) releaseNamespace(ns *namespace) {
	if !ns.known && len(ns.pods)+len(ns.policies) == 0 && ns.terms.Empty() {
		delete(x.namespaces, ns.name)
	}
}

// SetNamespace takes a namespace as it now is.
func (x *Spans) SetNamespace(n npc.Namespace) []Change {
	ns := x.namespace(n.Name)
	return x.relabel(ns, n.Labels, true)
}

// DeleteNamespace removes a namespace. Its pods and policies are removed by themselves.
func (x *Spans) DeleteNamespace(name string) []Change {
	ns := x.namespaces[name]
	if ns == nil {
		return nil
	}
	changes := x.relabel(ns, nil, false)
	x.releaseNamespace(ns)
	return changes
}

// relabel lets everything follow that chooses namespaces by their labels.
func (x *Spans) relabel(ns *namespace, labels map[string]string, known bool) []Change {
	for _, p := range ns.pods {
		p.touch(x, p.claims)
	}
	ns.labels, ns.known = labels, known
	for _, s := range x.spaces {
		if ns.in(s.Selector) {
			s.matched[ns] = struct{}{}
		} else {
			delete(s.matched, ns)
		}
	}
	for _, p := range ns.pods {
		p.follow(x)
		p.place(x, p.node)
	}
	return x.settle()
}

// node is the state of one node.
type node struct {
	name     string
	id       int
	watchers int
	pods     map[*pod]struct{}
	// terms are those that policies use which select a pod of the node, with how many do.
	terms map[*term]int32
}

// node returns the node of a name, making it if need be; nil for the empty name.
func (x *Spans) node(name string) *node {
	if name == "" {
		return nil
	}
	n := x.nodes[name]
	if n == nil {
		n = &node{name: x.interner.Share(name), id: slices.Index(x.byID, nil), pods: map[*pod]struct{}{}, terms: map[*term]int32{}}
		if n.id < 0 {
			n.id = len(x.byID)
			x.byID = append(x.byID, nil)
		}
		x.byID[n.id], x.nodes[n.name] = n, n
	}
	return n
}

// releaseNode forgets a node of which nothing is left.
func (x *Spans) releaseNode(n *node) {
	if n != nil && n.watchers == 0 && len(n.pods)+len(n.terms) == 0 {
		delete(x.nodes, n.name)
		x.byID[n.id] = nil
	}
}
