package reachability

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
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

// add adds the ends of a set that are in another one too.
func (s endSet) add(of, and endSet) {
	for w := range s {
		s[w] |= of[w] & and.word(w)
	}
}

// remove removes the ends of another set.
func (s endSet) remove(of endSet) {
	for w := range s {
		s[w] &^= of.word(w)
	}
}

// evaluation is the policies of one view, evaluated for the ends of a partition. It holds what is the same for every
// service.
type evaluation struct {
	*Partition
	*view
	byNamespace map[string][]int // namespace -> its ends
	// peers are the ends that match the peers of a rule, and numbers identify the rules.
	peers   map[*policy.Rule]endSet
	alike   map[string]endSet // peers by peerKey
	numbers map[*policy.Rule]uint64
	// choices are the policies that select the pod of an end, by direction.
	choices [len(npc.Directions)][]choice
}

// choice is the rules that count for a pod in one direction: those of each tier in order, those of NetworkPolicies, and
// whether the pod is isolated at all.
type choice struct {
	tiers    [len(policy.Tiers)][]tierRule
	rules    []*policy.Rule
	isolated bool
}

// tierRule is a rule of a cluster network policy.
type tierRule struct {
	*policy.Rule
	action policy.Action
}

// newEvaluation returns an evaluation of no ends yet.
func newEvaluation(p *Partition, v *view) *evaluation {
	return &evaluation{Partition: p, view: v, byNamespace: map[string][]int{}, peers: map[*policy.Rule]endSet{},
		alike:   map[string]endSet{},
		numbers: map[*policy.Rule]uint64{}}
}

func (p *Partition) evaluate(v *view) *evaluation {
	e := newEvaluation(p, v)
	for r := range cluster.Rules(v.View) {
		e.numbers[r] = uint64(len(e.numbers))
	}
	for i, end := range p.ends {
		e.byNamespace[end.namespace] = append(e.byNamespace[end.namespace], i)
		for _, d := range npc.Directions {
			var of choice
			if pod := e.pod(i); pod != nil {
				of = v.choice(pod, d)
			}
			e.choices[d] = append(e.choices[d], of)
		}
	}
	return e
}

// choice returns the policies that select a pod in a direction.
func (v *view) choice(p *npc.Pod, d npc.Direction) (of choice) {
	isolating, isolated := v.Isolating(p, d)
	of.isolated = isolated
	for _, q := range isolating {
		for i := range q.Rules[d] {
			of.rules = append(of.rules, &q.Rules[d][i])
		}
	}
	for _, t := range policy.Tiers {
		for _, q := range v.Tier(t, p, d) {
			for i := range q.Written[d] {
				r := &q.Written[d][i]
				of.tiers[t] = append(of.tiers[t], tierRule{&r.Rule, r.Action})
			}
		}
	}
	return of
}

// pod returns the pod of an end, or nil.
func (e *evaluation) pod(i int) *npc.Pod { return e.Pods[e.ends[i].Pod] }

func (e *evaluation) newSet() endSet { return make(endSet, (len(e.ends)+63)/64) }

// all returns a set of all ends that can be changed. It has bits of no end too, which no caller asks about.
func (e *evaluation) all() endSet {
	s := e.newSet()
	for w := range s {
		s[w] = ^uint64(0)
	}
	return s
}

// peersOf returns the ends that match the peers of a rule.
func (e *evaluation) peersOf(rule *policy.Rule) endSet {
	if len(rule.Peers) == 0 {
		return nil
	}
	fit, ok := e.peers[rule]
	if ok {
		return fit
	}
	if fit = e.peer(rule.Peers[0]); len(rule.Peers) > 1 {
		fit = slices.Clone(fit)
		for _, c := range rule.Peers[1:] {
			fit.add(e.peer(c), nil)
		}
	}
	e.peers[rule] = fit
	return fit
}

// peer returns the ends that match a peer. Many rules have the same peers.
func (e *evaluation) peer(c policy.Peer) endSet {
	key := peerKey(c)
	fit, ok := e.alike[key]
	if ok {
		return fit
	}
	fit = e.newSet()
	add := func(i int) {
		if explain.PeerFits(e.View, c, e.ends[i].Addr, e.pod(i)) {
			fit[i/64] |= 1 << (i % 64)
		}
	}
	switch {
	case c.Block != nil || c.Nodes != nil:
		for i := range e.ends {
			add(i)
		}
	case c.Namespaces == nil:
		for _, i := range e.byNamespace[c.Namespace] {
			add(i)
		}
	default:
		for name, ends := range e.byNamespace {
			if ns, known := e.Namespaces[name]; known && c.Namespaces.Matches(ns.Labels) {
				for _, i := range ends {
					add(i)
				}
			}
		}
	}
	e.alike[key] = fit
	return fit
}

// peerKey returns a text that is the same for peers that match the same.
func peerKey(c policy.Peer) string {
	part := func(name string, s *policy.Selector) string {
		if s == nil {
			return ""
		}
		return name + s.String()
	}
	if c.Block != nil {
		return fmt.Sprint(c.Block.CIDR, c.Block.Except)
	}
	return c.Namespace + part("\nnodes ", c.Nodes) + part("\nnamespaces ", c.Namespaces) + part("\npods ", c.Pods)
}

// Relation is which ends allow flows to and from which others, for one service.
type Relation struct {
	*evaluation
	flow.Service
	// egress holds for each source the destinations that its policies allow, ingress for each destination the sources.
	egress, ingress []endSet
}

// relation evaluates all ends for a service.
func (e *evaluation) relation(s flow.Service) *Relation {
	r := &Relation{evaluation: e, Service: s, egress: make([]endSet, len(e.ends)), ingress: make([]endSet, len(e.ends))}
	for d, sides := range map[npc.Direction][]endSet{npc.Egress: r.egress, npc.Ingress: r.ingress} {
		known := map[string]endSet{} // rules that match an end's ports -> the ends that they allow
		for i := range e.ends {
			if p := e.pod(i); p != nil {
				sides[i] = r.side(p, d, e.choices[d][i], known)
			}
		}
	}
	return r
}

// side returns the ends that policies allow a pod to exchange flows with in a direction.
func (r *Relation) side(p *npc.Pod, d npc.Direction, of choice, known map[string]endSet) endSet {
	of = r.onPorts(p, d, of)
	if !of.isolated && len(of.tiers[policy.Admin])+len(of.tiers[policy.Baseline]) == 0 {
		return nil
	}
	key := r.key(of)
	if fit, ok := known[key]; ok {
		return fit
	}
	rest, fit := r.all(), r.newSet()
	rest = r.tier(rest, fit, of.tiers[policy.Admin], d)
	if of.isolated {
		for _, rule := range of.rules {
			fit.add(rest, r.matching(rule, d))
		}
	} else {
		rest = r.tier(rest, fit, of.tiers[policy.Baseline], d)
		fit.add(rest, nil)
	}
	known[key] = fit
	return fit
}

// onPorts returns the rules that match the ports of flows to a pod. Of flows from it they depend on the other end.
func (r *Relation) onPorts(p *npc.Pod, d npc.Direction, of choice) choice {
	if d == npc.Egress {
		return of
	}
	matches := choice{isolated: of.isolated}
	for _, rule := range of.rules {
		if portsFit(rule, r.Service, p) {
			matches.rules = append(matches.rules, rule)
		}
	}
	for t, rules := range of.tiers {
		for _, rule := range rules {
			if portsFit(rule.Rule, r.Service, p) {
				matches.tiers[t] = append(matches.tiers[t], rule)
			}
		}
	}
	return matches
}

// key returns a text that identifies a choice.
func (r *Relation) key(of choice) string {
	key := []byte{0}
	if of.isolated {
		key[0] = 1
	}
	for _, rules := range of.tiers {
		for _, rule := range rules {
			key = binary.AppendUvarint(key, 1+r.numbers[rule.Rule])
		}
		key = append(key, 0)
	}
	for _, rule := range of.rules {
		key = binary.AppendUvarint(key, 1+r.numbers[rule])
	}
	return string(key)
}

// tier asks the rules of a tier about the ends of rest. It adds those that they accept to fit, and returns those that
// the next tier is asked about: the ones that no rule matches, and the ones that a rule passes on.
func (r *Relation) tier(rest, fit endSet, rules []tierRule, d npc.Direction) (next endSet) {
	next = r.newSet()
	for _, rule := range rules {
		peers := r.matching(rule.Rule, d)
		switch rule.action {
		case policy.Accept:
			fit.add(rest, peers)
		case policy.Pass:
			next.add(rest, peers)
		}
		rest.remove(peers)
	}
	next.add(rest, nil)
	return next
}

// matching returns the ends that match a rule in a direction: as its peers, and for egress with its ports. Those of
// ingress must match.
func (r *Relation) matching(rule *policy.Rule, d npc.Direction) endSet {
	peers := r.peersOf(rule)
	if d == npc.Ingress {
		return peers
	}
	named := slices.ContainsFunc(rule.Ports, func(p policy.Port) bool { return p.Name != "" })
	if !named && portsFit(rule, r.Service, nil) {
		return peers
	}
	fit := r.newSet()
	if !named {
		return fit
	}
	for i := range r.ends {
		if peers.has(i) && portsFit(rule, r.Service, r.pod(i)) {
			fit[i/64] |= 1 << (i % 64)
		}
	}
	return fit
}

func portsFit(rule *policy.Rule, s flow.Service, destination *npc.Pod) bool {
	return len(rule.Ports) == 0 || slices.ContainsFunc(rule.Ports, func(p policy.Port) bool {
		return explain.PortFits(p, s, destination)
	})
}

// allowed reports whether an end reaches another one that is not of the same pod.
func (r *Relation) allowed(from, to int) bool {
	a, b := r.ends[from], r.ends[to]
	if a.alone || b.alone || r.Unreadable.Any() {
		return r.explain(from, to).Allowed
	}
	return r.egress[from].has(to) && r.ingress[to].has(from)
}

// unknown reports whether it is not known if an end reaches another one.
func (r *Relation) unknown(from, to int) bool { return r.explain(from, to).Unknown }

func (r *Relation) explain(from, to int) explain.Verdict {
	return explain.Explain(r.View, flow.Flow{From: r.ends[from].End, To: r.ends[to].End, Service: r.Service})
}

// Cell is whether one end reaches another.
type Cell string

// The values of cells.
const (
	CellAllowed Cell = "allowed"
	CellDenied  Cell = "denied"
	// CellPartly: allowed in one family and denied in the other.
	CellPartly Cell = "partly"
	// CellNever: there are no addresses of the same family.
	CellNever Cell = "never"
	// CellUnknown: something could not be read that decides.
	CellUnknown Cell = "unknown"
)

// Reach returns whether a pod of one class reaches another pod of the same class or of another one.
func (r *Relation) Reach(from, to int) Cell {
	flows, allowed := 0, 0
	for _, a := range r.classes[from].ends {
		for _, b := range r.classes[to].ends {
			if x, y := r.ends[a].Addr, r.ends[b].Addr; x.IsValid() && y.IsValid() && x.Is4() != y.Is4() {
				continue
			}
			if r.Unreadable.Any() && r.unknown(a, b) {
				return CellUnknown
			}
			flows++
			if r.allowed(a, b) {
				allowed++
			}
		}
	}
	return Tally(flows, allowed)
}

// Tally returns the cell for a number of flows between the same two. Allowed is how many of them are allowed.
func Tally(flows, allowed int) Cell {
	switch {
	case flows == 0:
		return CellNever
	case allowed == 0:
		return CellDenied
	case allowed == flows:
		return CellAllowed
	}
	return CellPartly
}
