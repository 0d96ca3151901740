package reach

import (
	"encoding/binary"
	"math/bits"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// endSet is a set of ends; nil is all of them.
type endSet []uint64

func (s endSet) has(i int) bool { return s == nil || s[i/64]&(1<<(i%64)) != 0 }

func (s endSet) word(i int) uint64 {
	if s == nil {
		return ^uint64(0)
	}
	return s[i]
}

// judge knows which ends reach which under the policies of one world.
type judge struct {
	*partition
	*world
	byNamespace map[string][]int // namespace -> its ends
	// peers are the ends that the peers of a rule fit, and selecting the policies that select the pod of an end. They are the same for every
	// service.
	peers     map[ruleID]endSet
	selecting [][]*explain.Policy
}

type ruleID struct {
	policy    *explain.Policy
	direction npc.Direction
	rule      int
}

func (p *partition) judge(w *world) *judge {
	j := &judge{p, w, map[string][]int{}, map[ruleID]endSet{}, make([][]*explain.Policy, len(p.ends))}
	for i, e := range p.ends {
		j.byNamespace[e.namespace] = append(j.byNamespace[e.namespace], i)
		pod := j.pod(i)
		if pod == nil {
			continue
		}
		for _, policy := range w.policies[pod.Namespace] {
			if policy.Target.Matches(pod.Labels) {
				j.selecting[i] = append(j.selecting[i], policy)
			}
		}
	}
	return j
}

func (j *judge) pod(i int) *npc.Pod { return j.objects.Pods[j.ends[i].Pod] }

func (j *judge) newSet() endSet { return make(endSet, (len(j.ends)+63)/64) }

// peersOf returns the ends that fit the peers of a rule.
func (j *judge) peersOf(id ruleID, rule policy.CompiledRule) endSet {
	if len(rule.Peers) == 0 {
		return nil
	}
	fit, ok := j.peers[id]
	if ok {
		return fit
	}
	fit = j.newSet()
	for _, c := range rule.Peers {
		add := func(i int) {
			if j.objects.PeerFits(c, id.policy.Object.Namespace, j.ends[i].Addr, j.pod(i)) {
				fit[i/64] |= 1 << (i % 64)
			}
		}
		switch {
		case c.Block == nil && c.Namespaces == nil:
			for _, i := range j.byNamespace[id.policy.Object.Namespace] {
				add(i)
			}
		case c.Block == nil:
			for name, ends := range j.byNamespace {
				if ns, known := j.objects.Namespaces[name]; known && c.Namespaces.Matches(ns.Labels) {
					for _, i := range ends {
						add(i)
					}
				}
			}
		default:
			for i := range j.ends {
				add(i)
			}
		}
	}
	j.peers[id] = fit
	return fit
}

// relation is which ends let which through, for one service: as sources and as destinations.
type relation struct {
	*judge
	explain.Service
	// egress holds for each source the destinations that it is let through to, ingress for each destination the sources.
	egress, ingress []endSet
}

// relation judges all ends.
func (j *judge) relation(s explain.Service) *relation {
	r := &relation{judge: j, Service: s, egress: make([]endSet, len(j.ends)), ingress: make([]endSet, len(j.ends))}
	for d, sides := range map[npc.Direction][]endSet{npc.Egress: r.egress, npc.Ingress: r.ingress} {
		known := map[string]endSet{} // the rules that are open for an end -> whom they let through
		for i := range j.ends {
			if p := j.pod(i); p != nil {
				sides[i] = r.side(p, d, j.selecting[i], known)
			}
		}
	}
	return r
}

// side returns the ends that policies let through to or from a pod.
func (r *relation) side(p *npc.Pod, d npc.Direction, selecting []*explain.Policy, known map[string]endSet) endSet {
	var rules []ruleID
	isolated := r.LegacyNetpol && d == npc.Ingress && r.objects.Namespaces[p.Namespace].DefaultDeny
	for _, policy := range selecting {
		if !policy.Isolates[d] {
			continue
		}
		isolated = isolated || !r.LegacyNetpol
		for i, rule := range policy.Rules[d] {
			if d == npc.Egress || portsFit(rule, r.Service, p) {
				rules = append(rules, ruleID{policy, d, i})
			}
		}
	}
	if !isolated {
		return nil
	}
	var key []byte
	for _, id := range rules {
		key = append(append(key, id.policy.Key()...), ' ')
		key = binary.AppendUvarint(key, uint64(id.rule))
	}
	if fit, ok := known[string(key)]; ok {
		return fit
	}
	fit := r.newSet()
	for _, id := range rules {
		r.open(fit, id)
	}
	known[string(key)] = fit
	return fit
}

// open adds the ends that a rule lets through.
func (r *relation) open(fit endSet, id ruleID) {
	rule := id.policy.Rules[id.direction][id.rule]
	peers := r.peersOf(id, rule)
	named := false
	for _, port := range rule.Ports {
		named = named || port.Name != ""
	}
	if id.direction == npc.Egress && !named && !portsFit(rule, r.Service, nil) {
		return
	}
	for w := range fit {
		for word := peers.word(w); word != 0; word &= word - 1 {
			i := w*64 + bits.TrailingZeros64(word)
			if i < len(r.ends) && (id.direction == npc.Ingress || !named || portsFit(rule, r.Service, r.pod(i))) {
				fit[w] |= word & -word
			}
		}
	}
}

func portsFit(rule policy.CompiledRule, s explain.Service, destination *npc.Pod) bool {
	for _, port := range rule.Ports {
		if explain.PortFits(port, s, destination) {
			return true
		}
	}
	return len(rule.Ports) == 0
}

// allowed reports whether an end reaches another one, which is not of the same pod.
func (r *relation) allowed(from, to int) bool {
	a, b := r.ends[from], r.ends[to]
	if a.alone || b.alone {
		return r.Explain(explain.Flow{From: a.End, To: b.End, Service: r.Service}).Allowed
	}
	return r.egress[from].has(to) && r.ingress[to].has(from)
}

// reach judges two different pods of two classes, or of one.
func (r *relation) reach(from, to int) cell {
	flows, allowed := 0, 0
	for _, a := range r.Classes[from].ends {
		for _, b := range r.Classes[to].ends {
			if x, y := r.ends[a].Addr, r.ends[b].Addr; x.IsValid() && y.IsValid() && x.Is4() != y.Is4() {
				continue
			}
			flows++
			if r.allowed(a, b) {
				allowed++
			}
		}
	}
	switch {
	case flows == 0:
		return cellNever
	case allowed == 0:
		return cellDenied
	case allowed == flows:
		return cellAllowed
	}
	return cellPartly
}
