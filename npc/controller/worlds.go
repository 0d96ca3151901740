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

	"github.com/weave-npc/weave-npc/npc/isolation"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/staged"
	"github.com/weave-npc/weave-npc/npc/tiers"
)

// maxWorlds limits the worlds that a namespace's staged policies may be in, and those of the cluster: each recorded connection is judged in all that
// concern it. A namespace with more does not cost others theirs.
const maxWorlds = 8

// worlds are the staged policies, by the worlds that they make.
type worlds struct {
	policies map[staged.Key]*stagedPolicy
	// all are the worlds in order of their names, and faults what is wrong with policies. They are found anew when they are asked for.
	all    []*world
	faults map[staged.Key]string
	stale  bool
}

// stagedPolicy is either a NetworkPolicy or a ClusterNetworkPolicy.
type stagedPolicy struct {
	staged.Change
	key       staged.Key
	content   string
	namespace *isolation.Policy
	cluster   *tiers.Policy
}

func newWorlds() worlds { return worlds{policies: map[staged.Key]*stagedPolicy{}} }

// Stage takes staged policies, of which nothing reaches the kernel.
type Stage struct{ c *Controller }

// StageOf returns the stage of a controller.
func StageOf(c *Controller) Stage { return Stage{c} }

// StagePolicy takes a staged policy as it now is. The object must not be changed afterwards.
func (s Stage) StagePolicy(key staged.Key, change staged.Change, o *networkingv1.NetworkPolicy) {
	s.put(&stagedPolicy{Change: change, key: key, content: contentOf(change, o.Spec), namespace: isolation.Compile(o, s.c.state.limits)})
}

// StageClusterPolicy takes a staged cluster network policy as it now is.
func (s Stage) StageClusterPolicy(key staged.Key, change staged.Change, o *v1alpha2.ClusterNetworkPolicy) {
	s.put(&stagedPolicy{Change: change, key: key, content: contentOf(change, o.Spec), cluster: tiers.Compile(o)})
}

func (s Stage) put(p *stagedPolicy) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.judge.worlds.policies[p.key] = p
	s.c.judge.worlds.stale = true
}

// Unstage removes a staged policy.
func (s Stage) Unstage(key staged.Key) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	delete(s.c.judge.worlds.policies, key)
	s.c.judge.worlds.stale = true
}

// Faults returns what is wrong with staged policies.
func (s Stage) Faults() map[staged.Key]string {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.judge.worlds.find()
	return s.c.judge.worlds.faults // it is not changed, but replaced
}

// contentOf returns a text that is equal for policies that say the same.
func contentOf(change staged.Change, spec any) string {
	text, err := json.Marshal(spec)
	if err != nil { // objects of an API have no values without a text
		text = fmt.Append(nil, spec)
	}
	return naming.Hash(fmt.Sprint(change), string(text))
}

// find finds the worlds that the policies make.
func (ws *worlds) find() {
	if !ws.stale {
		return
	}
	ws.stale, ws.all, ws.faults = false, nil, map[staged.Key]string{}
	byName := map[string]*world{}
	in := map[string]map[string]bool{} // namespace -> its worlds, those of the cluster under no name
	// In this order, whose worlds there is room for does not depend on who came first.
	for _, p := range slices.SortedFunc(maps.Values(ws.policies), (*stagedPolicy).compare) {
		effect, fault := p.check()
		if fault == "" && !effect {
			continue
		}
		if in[p.key.Namespace] == nil {
			in[p.key.Namespace] = map[string]bool{}
		}
		if of := in[p.key.Namespace]; effect && !of[p.World] && len(of) == maxWorlds {
			effect, fault = false, fmt.Sprintf("%d other worlds come before world %s, and no more are judged of a namespace or of the cluster", maxWorlds, p.World)
		}
		if fault != "" {
			ws.faults[p.key] = fault
		}
		if !effect {
			continue
		}
		in[p.key.Namespace][p.World] = true
		if byName[p.World] == nil {
			byName[p.World] = newWorld(p.World)
			ws.all = append(ws.all, byName[p.World])
		}
		byName[p.World].add(p)
	}
}

// compare orders policies by world, and in a world by name.
func (p *stagedPolicy) compare(q *stagedPolicy) int {
	apart := map[bool]int{true: 1}
	return cmp.Or(strings.Compare(p.World, q.World), strings.Compare(p.key.Namespace, q.key.Namespace), strings.Compare(p.key.Name, q.key.Name),
		cmp.Compare(apart[p.key.Apart], apart[q.key.Apart]))
}

// check returns whether a policy does anything to its world, and what is wrong with it.
func (p *stagedPolicy) check() (effect bool, fault string) {
	if p.cluster != nil {
		return p.Effect(p.cluster.Invalid, p.cluster.Inert)
	}
	return p.Effect(p.namespace.Invalid, true)
}
