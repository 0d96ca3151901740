// Package explain says which policy, and which rule of it, lets a flow through or does not, and why. It evaluates the policies themselves,
// not the rules that come of them.
package explain

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/objectkey"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// World is a cluster's namespaces, pods and policies. It is a sink of sources. Its methods may be called by several goroutines.
type World struct {
	// LegacyNetpol gives policies the meaning that they had in Kubernetes 1.6.
	LegacyNetpol bool

	mu         sync.Mutex
	namespaces map[string]npc.Namespace
	pods       map[string]*npc.Pod // namespace/name -> pod
	policies   map[string]*Policy  // namespace/name -> policy
	// derived is what follows of them, as far as it was asked for since they last changed.
	derived derived
}

// derived is what follows of a world's objects. Each field is nil until it is asked for.
type derived struct {
	claims      map[netip.Addr][]*npc.Pod          // address -> the pods that claim it, of which each node takes one for its owner
	hosts       map[string]map[netip.Addr]struct{} // node -> its addresses, of all nodes if empty
	byNamespace map[string][]*Policy               // namespace -> its policies, in the order of their names
	selecting   map[*npc.Pod][]*Policy             // pod -> policies that select it, in the order of their names
}

func (w *World) changed() { w.derived = derived{selecting: map[*npc.Pod][]*Policy{}} }

// Policy is a policy with its meaning.
type Policy struct {
	Object *networkingv1.NetworkPolicy
	policy.Compiled
}

// Key returns its namespace/name.
func (p *Policy) Key() string { return objectkey.Of(p.Object.Namespace, p.Object.Name) }

// NewWorld returns a world that knows no object.
func NewWorld() *World {
	w := &World{namespaces: map[string]npc.Namespace{}, pods: map[string]*npc.Pod{}, policies: map[string]*Policy{}}
	w.changed()
	return w
}

// Clone returns a world of the same objects that can be changed.
func (w *World) Clone() *World {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := NewWorld()
	c.LegacyNetpol = w.LegacyNetpol
	c.namespaces, c.pods, c.policies = maps.Clone(w.namespaces), maps.Clone(w.pods), maps.Clone(w.policies)
	return c
}

// Objects is what a world knows. Who asks for them must not change them.
type Objects struct {
	Namespaces map[string]npc.Namespace
	Pods       map[string]*npc.Pod // namespace/name -> pod
	Policies   []*Policy           // in the order of their names
}

// Objects returns what the world knows now.
func (w *World) Objects() Objects {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := Objects{Namespaces: maps.Clone(w.namespaces), Pods: maps.Clone(w.pods)}
	for _, key := range slices.Sorted(maps.Keys(w.policies)) {
		o.Policies = append(o.Policies, w.policies[key])
	}
	return o
}

// SetNamespace takes a namespace as it now is.
func (w *World) SetNamespace(n npc.Namespace) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.namespaces[n.Name] = n
}

// DeleteNamespace takes note that a namespace is gone. An empty UID stands for whichever is there, as for all Delete methods.
func (w *World) DeleteNamespace(name string, uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if uid == "" || w.namespaces[name].UID == uid {
		delete(w.namespaces, name)
	}
}

// SetPod takes a pod as it now is.
func (w *World) SetPod(p npc.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[objectkey.Of(p.Namespace, p.Name)] = &p
	w.changed()
}

// DeletePod takes note that a pod is gone.
func (w *World) DeletePod(namespace, name string, uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pods[objectkey.Of(namespace, name)]; p != nil && (uid == "" || p.UID == uid) {
		delete(w.pods, objectkey.Of(namespace, name))
		w.changed()
	}
}

// SetPolicy takes a policy as it now is. The object must not be changed afterwards.
func (w *World) SetPolicy(o *networkingv1.NetworkPolicy) {
	compiled := policy.CompileItems(o)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.policies[objectkey.Of(o.Namespace, o.Name)] = &Policy{o, compiled}
	w.changed()
}

// DeletePolicy takes note that a policy is gone.
func (w *World) DeletePolicy(namespace, name string, uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.policies[objectkey.Of(namespace, name)]; p != nil && (uid == "" || p.Object.UID == uid) {
		delete(w.policies, objectkey.Of(namespace, name))
		w.changed()
	}
}

// SetSynced is of no interest: who reads objects once knows when they are read.
func (w *World) SetSynced() {}

// SetMissing is of no interest for the same reason.
func (w *World) SetMissing(npc.Missing) {}

// SetConnected is of no interest either.
func (w *World) SetConnected(string, bool) {}

// claimsOf returns the pods that claim an address.
func (w *World) claimsOf(a netip.Addr) []*npc.Pod {
	if w.derived.claims == nil {
		w.derived.claims = make(map[netip.Addr][]*npc.Pod, len(w.pods))
		for _, p := range w.pods {
			for _, a := range p.Claims() {
				w.derived.claims[a] = append(w.derived.claims[a], p)
			}
		}
	}
	return w.derived.claims[a]
}

// owner returns the pod that a node takes for the owner of an address, nil if it is none. The empty node has no pods of its own.
func (w *World) owner(a netip.Addr, node string) (owner *npc.Pod) {
	for _, p := range w.claimsOf(a) {
		if !w.isNodes(a, p, node) && (owner == nil || npc.OwnsRather(p, owner, node)) {
			owner = p
		}
	}
	return owner
}

// isNodes reports whether an address that a pod claims is a node's instead, as one node sees it. What other objects contain takes
// no address from a pod of the node itself.
func (w *World) isNodes(a netip.Addr, p *npc.Pod, node string) bool {
	if slices.Contains(p.HostAddrs, a) {
		return true
	}
	_, other := w.hosts("")[a]
	return other && node != "" && p.Node != node
}

// hosts are the addresses of a node, those of all nodes if it is empty.
func (w *World) hosts(node string) map[netip.Addr]struct{} {
	if w.derived.hosts == nil {
		w.derived.hosts = map[string]map[netip.Addr]struct{}{"": {}}
		for _, p := range w.pods {
			if w.derived.hosts[p.Node] == nil {
				w.derived.hosts[p.Node] = map[netip.Addr]struct{}{}
			}
			for _, a := range p.HostAddrs {
				w.derived.hosts[p.Node][a], w.derived.hosts[""][a] = struct{}{}, struct{}{}
			}
		}
	}
	return w.derived.hosts[node]
}

// isOwnNode says whether an address is one of the node that a pod is on.
func (w *World) isOwnNode(a netip.Addr, p *npc.Pod) bool {
	_, ok := w.hosts(p.Node)[a]
	return ok && p.Node != ""
}

// policiesOf returns those that select a pod, in the order of their names.
func (w *World) policiesOf(p *npc.Pod) []*Policy {
	out, ok := w.derived.selecting[p]
	if ok {
		return out
	}
	for _, q := range w.policiesIn(p.Namespace) {
		if q.Target.Matches(p.Labels) {
			out = append(out, q)
		}
	}
	w.derived.selecting[p] = out
	return out
}

// policiesIn returns those of a namespace, in the order of their names.
func (w *World) policiesIn(namespace string) []*Policy {
	if w.derived.byNamespace == nil {
		w.derived.byNamespace = map[string][]*Policy{}
		for _, key := range slices.Sorted(maps.Keys(w.policies)) {
			p := w.policies[key]
			w.derived.byNamespace[p.Object.Namespace] = append(w.derived.byNamespace[p.Object.Namespace], p)
		}
	}
	return w.derived.byNamespace[namespace]
}

// Find returns the ends that a text names: a pod as namespace/name, one end for each of its addresses, or one without an address if it has
// none yet; or an address. The error says why a pod cannot be one.
func (w *World) Find(text string) ([]End, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return []End{{Addr: a.Unmap()}}, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pods[text]
	switch {
	case p == nil:
		return nil, w.noPod(text)
	case p.Finished:
		return nil, errors.Errorf("pod %s has finished: nothing reaches it, nor does it reach anything", text)
	case p.HostNetwork:
		return w.hostEnds(p), nil
	case len(p.Addrs) == 0:
		return []End{{Pod: text}}, nil
	}
	var ends []End
	for _, a := range p.Addrs {
		if w.owner(a, p.Node) == p {
			ends = append(ends, End{Pod: text, Addr: a})
		}
	}
	if len(ends) == 0 {
		return nil, errors.Errorf("pod %s says that it has address %s, which belongs to %s", text, p.Addrs[0], w.name(p.Addrs[0], p.Node))
	}
	return ends, nil
}

// hostEnds are the addresses of a pod that is on its node's network: those of the node.
func (w *World) hostEnds(p *npc.Pod) []End {
	var ends []End
	for _, a := range slices.Concat(p.Addrs, p.HostAddrs) {
		if e := (End{Addr: a}); !slices.Contains(ends, e) {
			ends = append(ends, e)
		}
	}
	return ends
}

// name is what has an address, in words.
func (w *World) name(a netip.Addr, node string) string {
	if p := w.owner(a, node); p != nil {
		return "pod " + objectkey.Of(p.Namespace, p.Name)
	}
	if _, ok := w.hosts("")[a]; ok {
		return "a node"
	}
	return "nobody"
}

// Pods are the names of the pods that may be ends of a flow, sorted; those of one namespace if it is not empty. Pods on the network of
// their node and finished ones are not among them.
func (w *World) Pods(namespace string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for key, p := range w.pods {
		if !p.HostNetwork && !p.Finished && (namespace == "" || p.Namespace == namespace) {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}
