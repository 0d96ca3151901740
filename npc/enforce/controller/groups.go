package controller

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/weave-npc/weave-npc/npc/enforce/internal/clusterpolicy"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/networkpolicy"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/policy/staged"
)

// maxGroups limits the groups that a namespace's staged policies may be in, and those of the cluster: each recorded
// connection is evaluated in all that concern it. A namespace with more does not cost others theirs.
const maxGroups = 8

// groups are the staged policies, and the groups that they form.
type groups struct {
	spaces map[string]*space // by namespace; those of ClusterNetworkPolicies have none
	byName map[string]*group
	// stale are the namespaces whose policies have changed: their parts of groups are computed again when they are
	// asked for.
	stale map[string]struct{}
}

// space is what is staged in a namespace.
type space struct {
	policies map[staged.Key]*stagedPolicy
	parts    []*part // by the names of their groups
	faults   map[staged.Key]string
}

// stagedPolicy is either a NetworkPolicy or a ClusterNetworkPolicy.
type stagedPolicy struct {
	staged.Operation
	key       staged.Key
	content   string
	namespace *networkpolicy.Policy
	cluster   *clusterpolicy.Policy
}

func newGroups() groups {
	return groups{spaces: map[string]*space{}, byName: map[string]*group{}, stale: map[string]struct{}{}}
}

// Stage takes staged policies, which never reach the kernel.
type Stage struct{ c *Controller }

// StageOf returns the stage of a controller.
func StageOf(c *Controller) Stage { return Stage{c} }

// StagePolicy takes a staged policy as it now is. The object must not be changed afterwards.
func (s Stage) StagePolicy(key staged.Key, change staged.Operation, o *networkingv1.NetworkPolicy) {
	s.put(&stagedPolicy{Operation: change, key: key, content: contentOf(change, o.Spec),
		namespace: networkpolicy.Compile(o, s.c.state.limits)})
}

// StageClusterPolicy takes a staged cluster network policy as it now is.
func (s Stage) StageClusterPolicy(key staged.Key, change staged.Operation, o *v1alpha2.ClusterNetworkPolicy) {
	s.put(&stagedPolicy{Operation: change, key: key, content: contentOf(change, o.Spec),
		cluster: clusterpolicy.Compile(o)})
}

func (s Stage) put(p *stagedPolicy) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	ws := &s.c.evaluator.groups
	of := ws.spaces[p.key.Namespace]
	if of == nil {
		of = &space{policies: map[staged.Key]*stagedPolicy{}}
		ws.spaces[p.key.Namespace] = of
	}
	of.policies[p.key] = p
	ws.stale[p.key.Namespace] = struct{}{}
}

// Unstage removes a staged policy.
func (s Stage) Unstage(key staged.Key) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if of := s.c.evaluator.groups.spaces[key.Namespace]; of != nil {
		delete(of.policies, key)
		s.c.evaluator.groups.stale[key.Namespace] = struct{}{}
	}
}

// Faults returns what is wrong with the staged policies of a namespace, or with ClusterNetworkPolicies.
func (s Stage) Faults(namespace string) map[staged.Key]string {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.evaluator.groups.find()
	if of := s.c.evaluator.groups.spaces[namespace]; of != nil {
		return of.faults // it is not changed, but replaced
	}
	return nil
}

// contentOf returns a text that is equal for policies that say the same.
func contentOf(change staged.Operation, spec any) string {
	text, err := json.Marshal(spec)
	if err != nil { // objects of an API have no values without a text
		text = fmt.Append(nil, spec)
	}
	return naming.Hash(fmt.Sprint(change), string(text))
}

// find updates the groups from the policies.
func (ws *groups) find() {
	for namespace := range ws.stale {
		of := ws.spaces[namespace]
		ws.leave(namespace, of)
		of.find()
		for _, p := range of.parts {
			w := ws.byName[p.group]
			if w == nil {
				w = &group{name: p.group, parts: map[string]*part{}, sides: sides{}}
				ws.byName[p.group] = w
			}
			w.set(namespace, p)
		}
		if len(of.policies) == 0 {
			delete(ws.spaces, namespace)
		}
	}
	clear(ws.stale)
}

// leave takes the parts of a namespace out of their groups.
func (ws *groups) leave(namespace string, of *space) {
	for _, p := range of.parts {
		w := ws.byName[p.group]
		if w.set(namespace, nil); len(w.parts) == 0 {
			delete(ws.byName, p.group)
		}
	}
}

// find computes the parts of groups that the policies make.
func (of *space) find() {
	of.parts, of.faults = nil, map[staged.Key]string{}
	// In this order, the limit selects groups independently of their order of arrival.
	for _, p := range slices.SortedFunc(maps.Values(of.policies), (*stagedPolicy).compare) {
		effect, fault := p.check()
		if n := len(of.parts); effect && (n == 0 || of.parts[n-1].group != p.Group) {
			if n < maxGroups {
				of.parts = append(of.parts, newPart(p.Group))
			} else {
				effect, fault = false, fmt.Sprintf("%d other groups come before group %s, and no more are evaluated "+
					"of a namespace or of the cluster", maxGroups, p.Group)
			}
		}
		if fault != "" {
			of.faults[p.key] = fault
		}
		if effect {
			of.parts[len(of.parts)-1].add(p)
		}
	}
}

// compare orders policies of a namespace by group, and within a group by name.
func (p *stagedPolicy) compare(q *stagedPolicy) int {
	apart := map[bool]int{true: 1}
	return cmp.Or(strings.Compare(p.Group, q.Group), strings.Compare(p.key.Name, q.key.Name),
		cmp.Compare(apart[p.key.Apart], apart[q.key.Apart]))
}

// check returns whether a policy changes anything in its group, and what is wrong with it.
func (p *stagedPolicy) check() (effect bool, fault string) {
	if p.cluster != nil {
		return p.Effect(p.cluster.Invalid, p.cluster.Inert)
	}
	return p.Effect(p.namespace.Invalid, true)
}
