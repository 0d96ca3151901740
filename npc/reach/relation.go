package reach

import (
	"encoding/binary"
	"math/bits"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
	"github.com/weave-npc/weave-npc/npc/traffic"
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

// evaluation is the policies of one view, evaluated for the ends of a partition. It holds what is the same for every service.
type evaluation struct {
	*partition
	*view
	byNamespace map[string][]int // namespace -> its ends
	// peers are the ends that match the peers of a rule.
	peers map[ruleID]endSet
	// isolation is what isolates the pod of an end, by direction.
	isolation [len(traffic.Directions)][]isolation
}

// isolation is the policies whose rules count for a pod in one direction, and whether it is isolated at all.
type isolation struct {
	policies []*cluster.Policy
	isolated bool
}

// ruleID identifies a rule of a policy.
type ruleID struct {
	policy    *cluster.Policy
	direction traffic.Direction
	rule      int
}

func (p *partition) evaluate(v *view) *evaluation {
	e := &evaluation{partition: p, view: v, byNamespace: map[string][]int{}, peers: map[ruleID]endSet{}}
	for i, end := range p.ends {
		e.byNamespace[end.namespace] = append(e.byNamespace[end.namespace], i)
		for _, d := range traffic.Directions {
			var of isolation
			if pod := e.pod(i); pod != nil {
				of.policies, of.isolated = v.Isolating(pod, d)
			}
			e.isolation[d] = append(e.isolation[d], of)
		}
	}
	return e
}

// pod returns the pod of an end, or nil.
func (e *evaluation) pod(i int) *npc.Pod { return e.Pods[e.ends[i].Pod] }

func (e *evaluation) newSet() endSet { return make(endSet, (len(e.ends)+63)/64) }

// peersOf returns the ends that match the peers of a rule.
func (e *evaluation) peersOf(id ruleID, rule policy.Rule) endSet {
	if len(rule.Peers) == 0 {
		return nil
	}
	fit, ok := e.peers[id]
	if ok {
		return fit
	}
	fit = e.newSet()
	for _, c := range rule.Peers {
		add := func(i int) {
			if explain.PeerFits(e.View, c, e.ends[i].Addr, e.pod(i)) {
				fit[i/64] |= 1 << (i % 64)
			}
		}
		switch {
		case c.Block == nil && c.Namespaces == nil:
			for _, i := range e.byNamespace[id.policy.Namespace] {
				add(i)
			}
		case c.Block == nil:
			for name, ends := range e.byNamespace {
				if ns, known := e.Namespaces[name]; known && c.Namespaces.Matches(ns.Labels) {
					for _, i := range ends {
						add(i)
					}
				}
			}
		default:
			for i := range e.ends {
				add(i)
			}
		}
	}
	e.peers[id] = fit
	return fit
}

// relation is which ends allow flows to and from which others, for one service.
type relation struct {
	*evaluation
	flow.Service
	// egress holds for each source the destinations that its policies allow, ingress for each destination the sources.
	egress, ingress []endSet
}

// relation evaluates all ends for a service.
func (e *evaluation) relation(s flow.Service) *relation {
	r := &relation{evaluation: e, Service: s, egress: make([]endSet, len(e.ends)), ingress: make([]endSet, len(e.ends))}
	for d, sides := range map[traffic.Direction][]endSet{traffic.Egress: r.egress, traffic.Ingress: r.ingress} {
		known := map[string]endSet{} // rules that match an end's ports -> the ends that they allow
		for i := range e.ends {
			if p := e.pod(i); p != nil {
				sides[i] = r.side(p, d, e.isolation[d][i], known)
			}
		}
	}
	return r
}

// side returns the ends that a pod's policies allow it to exchange flows with in a direction.
func (r *relation) side(p *npc.Pod, d traffic.Direction, of isolation, known map[string]endSet) endSet {
	if !of.isolated {
		return nil
	}
	var rules []ruleID
	for _, policy := range of.policies {
		for i, rule := range policy.Rules[d] {
			if d == traffic.Egress || portsFit(rule, r.Service, p) {
				rules = append(rules, ruleID{policy, d, i})
			}
		}
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

// open adds the ends that a rule allows.
func (r *relation) open(fit endSet, id ruleID) {
	rule := id.policy.Rules[id.direction][id.rule]
	peers := r.peersOf(id, rule)
	named := false
	for _, port := range rule.Ports {
		named = named || port.Name != ""
	}
	if id.direction == traffic.Egress && !named && !portsFit(rule, r.Service, nil) {
		return
	}
	for w := range fit {
		for word := peers.word(w); word != 0; word &= word - 1 {
			i := w*64 + bits.TrailingZeros64(word)
			if i < len(r.ends) && (id.direction == traffic.Ingress || !named || portsFit(rule, r.Service, r.pod(i))) {
				fit[w] |= word & -word
			}
		}
	}
}

func portsFit(rule policy.Rule, s flow.Service, destination *npc.Pod) bool {
	for _, port := range rule.Ports {
		if explain.PortFits(port, s, destination) {
			return true
		}
	}
	return len(rule.Ports) == 0
}

// allowed reports whether an end reaches another one that is not of the same pod.
func (r *relation) allowed(from, to int) bool {
	a, b := r.ends[from], r.ends[to]
	if a.alone || b.alone {
		return explain.Explain(r.View, flow.Flow{From: a.End, To: b.End, Service: r.Service}).Allowed
	}
	return r.egress[from].has(to) && r.ingress[to].has(from)
}

// cell is whether one end reaches another.
type cell string

// The values of cells.
const (
	cellAllowed cell = "allowed"
	cellDenied  cell = "denied"
	// cellPartly: allowed in one family and denied in the other.
	cellPartly cell = "partly"
	// cellNever: there are no addresses of the same family.
	cellNever cell = "never"
)

// reach returns whether a pod of one class reaches another pod of the same class or of another one.
func (r *relation) reach(from, to int) cell {
	flows, allowed := 0, 0
	for _, a := range r.classes[from].ends {
		for _, b := range r.classes[to].ends {
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
