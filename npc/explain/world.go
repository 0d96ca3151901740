// Package explain says which policy, and which rule of it, lets a flow through or does not, and why. It evaluates the policies themselves,
// not the rules that come of them.
package explain

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/pkg/errors"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
)

// World is a cluster's namespaces, pods and policies. It is a sink of sources. Its methods may be called by several goroutines.
type World struct {
	// LegacyNetpol gives policies the meaning that they had in Kubernetes 1.6.
	LegacyNetpol bool

	mu         sync.Mutex
	namespaces map[string]npc.Namespace
	pods       map[string]*npc.Pod // namespace/name -> pod
	policies   map[string]*policy  // namespace/name -> policy
	// derived is what follows of them, as far as it was asked for since they last changed.
	derived derived
}

// derived is what follows of a world's objects.
type derived struct {
	views     map[string]view                    // node -> what it makes of the pods; the empty node has no local ones
	hosts     map[string]map[netip.Addr]struct{} // node -> its addresses, of all nodes if empty; nil until asked for
	selecting map[*npc.Pod][]*policy             // pod -> policies that select it, in the order of their names
}

func (w *World) changed() {
	w.derived = derived{views: map[string]view{}, selecting: map[*npc.Pod][]*policy{}}
}

type policy struct {
	object *networkingv1.NetworkPolicy
	npc.Compiled
}

func (p *policy) key() string { return p.object.Namespace + "/" + p.object.Name }

// view is whom each address belongs to, as one node sees it.
type view map[netip.Addr]*npc.Pod

// NewWorld returns a world that knows no object.
func NewWorld() *World {
	w := &World{namespaces: map[string]npc.Namespace{}, pods: map[string]*npc.Pod{}, policies: map[string]*policy{}}
	w.changed()
	return w
}

// clone returns a world that can be changed.
func (w *World) clone() *World {
	c := NewWorld()
	c.LegacyNetpol = w.LegacyNetpol
	c.namespaces, c.pods, c.policies = maps.Clone(w.namespaces), maps.Clone(w.pods), maps.Clone(w.policies)
	return c
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
	w.pods[p.Namespace+"/"+p.Name] = &p
	w.changed()
}

// DeletePod takes note that a pod is gone.
func (w *World) DeletePod(namespace, name string, uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pods[namespace+"/"+name]; p != nil && (uid == "" || p.UID == uid) {
		delete(w.pods, namespace+"/"+name)
		w.changed()
	}
}

// SetPolicy takes a policy as it now is. The object must not be changed afterwards.
func (w *World) SetPolicy(o *networkingv1.NetworkPolicy) {
	compiled := npc.Compile(o)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.policies[o.Namespace+"/"+o.Name] = &policy{o, compiled}
	w.changed()
}

// DeletePolicy takes note that a policy is gone.
func (w *World) DeletePolicy(namespace, name string, uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.policies[namespace+"/"+name]; p != nil && (uid == "" || p.object.UID == uid) {
		delete(w.policies, namespace+"/"+name)
		w.changed()
	}
}

// SetSynced is of no interest: who reads objects once knows when they are read.
func (w *World) SetSynced() {}

// SetMissing is of no interest for the same reason.
func (w *World) SetMissing(npc.Missing) {}

// SetConnected is of no interest either.
func (w *World) SetConnected(string, bool) {}

// view returns what a node makes of the pods' addresses.
func (w *World) view(node string) view {
	if v, ok := w.derived.views[node]; ok {
		return v
	}
	v := view{}
	for _, p := range w.pods {
		for _, a := range p.Claims() {
			if q := v[a]; q == nil || npc.OwnsRather(p, q, node) {
				v[a] = p
			}
		}
	}
	for a := range w.hosts("") {
		delete(v, a)
	}
	w.derived.views[node] = v
	return v
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

// policiesOf are those that select a pod, in the order of their names.
func (w *World) policiesOf(p *npc.Pod) []*policy {
	out, ok := w.derived.selecting[p]
	if ok {
		return out
	}
	for _, q := range w.policies {
		if q.object.Namespace == p.Namespace && q.Target.Matches(p.Labels) {
			out = append(out, q)
		}
	}
	slices.SortFunc(out, func(a, b *policy) int { return strings.Compare(a.key(), b.key()) })
	w.derived.selecting[p] = out
	return out
}

// Find returns the ends that a text names: a pod as namespace/name, one end for each of its addresses, or one without an address if it has
// none yet; or an address. The error says why a pod cannot be one.
func (w *World) Find(text string) ([]End, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return []End{{Addr: a.Unmap()}}, nil
	}
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" {
		return nil, errors.Errorf("%q is neither an address nor a pod as NAMESPACE/NAME", text)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pods[text]
	switch {
	case p == nil:
		return nil, errors.Errorf("there is no pod %s", text)
	case p.Finished:
		return nil, errors.Errorf("pod %s has finished: nothing reaches it, nor does it reach anything", text)
	case p.HostNetwork:
		return w.hostEnds(p), nil
	case len(p.Addrs) == 0:
		return []End{{Pod: text}}, nil
	}
	var ends []End
	for _, a := range p.Addrs {
		if w.view(p.Node)[a] == p {
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
	if p := w.view(node)[a]; p != nil {
		return "pod " + p.Namespace + "/" + p.Name
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
