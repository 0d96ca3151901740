package controller

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/queue"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// namespace is the state of one namespace: what is in it and what it needs on this node.
type namespace struct {
	npc.Namespace
	// known is set once the namespace's own object has arrived; what it contains may come before.
	known    bool
	pods     map[string]*pod    // name -> pod
	policies map[string]*policy // name -> policy
	// local are the pods of this node, those without an address among them.
	local map[*pod]struct{}
	// selectors are those that choose among this namespace's pods alone.
	selectors selectorSet
	rules     [len(traffic.Directions)]*ruleSet
}

// matches reports whether a selector chooses the namespace; one whose object has not arrived is never chosen.
func (ns *namespace) matches(s labels.Selector) bool {
	return ns.known && s.Matches(labels.Set(ns.Labels))
}

// namespace returns the state of a namespace, making it if need be.
func (m *Controller) namespace(name string) *namespace {
	ns := m.namespaces[name]
	if ns == nil {
		ns = &namespace{
			Namespace: npc.Namespace{Name: name},
			pods:      map[string]*pod{},
			policies:  map[string]*policy{},
			local:     map[*pod]struct{}{},
		}
		m.namespaces[name] = ns
	}
	return ns
}

// releaseNamespace forgets a namespace in which nothing is left.
func (m *Controller) releaseNamespace(name string) {
	ns := m.namespaces[name]
	if ns == nil || ns.known || !ns.selectors.empty() || len(ns.pods)+len(ns.policies) > 0 {
		return
	}
	delete(m.namespaces, name)
}

// SetNamespace takes a namespace as it now is.
func (m *Controller) SetNamespace(n npc.Namespace) {
	m.change(queue.Event{Kind: queue.Pods, Key: "namespace/" + n.Name, UID: n.UID, Weight: 1, Apply: func() {
		ns := m.namespace(n.Name)
		relabelled := !ns.known || !labels.Equals(ns.Labels, n.Labels)
		isolation := ns.DefaultDeny != n.DefaultDeny
		ns.Namespace, ns.known = n, true
		if relabelled {
			m.relabelNamespace(ns)
		}
		if isolation && m.LegacyNetpol {
			m.isolate(ns)
		}
	}})
}

// DeleteNamespace removes a namespace. Its pods and policies are removed by themselves.
func (m *Controller) DeleteNamespace(name string, uid types.UID) {
	m.change(queue.Event{Kind: queue.Pods, Key: "namespace/" + name, UID: uid, Ends: true, Weight: 1, Apply: func() {
		ns := m.namespaces[name]
		if ns == nil || !ns.known || uid != "" && ns.UID != uid {
			return
		}
		isolation := ns.DefaultDeny
		ns.Namespace, ns.known = npc.Namespace{Name: name}, false
		m.relabelNamespace(ns)
		if isolation && m.LegacyNetpol {
			m.isolate(ns)
		}
		m.releaseNamespace(name)
	}})
}
