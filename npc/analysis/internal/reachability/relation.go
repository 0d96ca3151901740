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

// isEmpty reports whether no end is in the set.
func (s endSet) isEmpty() bool {
	return s != nil && !slices.ContainsFunc(s, func(word uint64) bool { return word != 0 })
}

func (s endSet) word(i int) uint64 {
	if s == nil {
		return ^uint64(0)
	}
	return s[i]
}

// add adds the ends of a set that are in another one too.
func (s endSet) add(of, and endSet) endSet {
	for w := range s {
		s[w] |= of[w] & and.word(w)
	}
	return s
}

// remove removes the ends of another set.
func (s endSet) remove(of endSet) endSet {
	for w := range s {
		s[w] &^= of.word(w)
	}
	return s
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

// choice is the rules that apply to a pod in one direction.
type choice = policy.Applied[cluster.Rule]

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
				of = v.Applied(pod, d)
			}
			e.choices[d] = append(e.choices[d], of)
		}
	}
	return e
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
	return c.Namespace + c.Name + part("\nnodes ", c.Nodes) + part("\nnamespaces ", c.Namespaces) + part("\npods ", c.Pods)
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
	if of.Isolated == policy.Never && len(of.Tiers[policy.Admin])+len(of.Tiers[policy.Baseline]) == 0 {
		return nil
	}
	key := r.key(of)
	if fit, ok := known[key]; ok {
		return fit
	}
	fit := r.newSet()
	q := policy.Question[endSet, cluster.Rule]{Action: cluster.Rule.Does,
		Sets:    policy.Sets[endSet]{None: r.newSet, IsEmpty: endSet.isEmpty, With: endSet.add, Less: endSet.remove},
		Matches: func(rule cluster.Rule) endSet { return r.matching(rule.Rule, d) },
		Decide: func(is policy.Decision[cluster.Rule], of, matched endSet) {
			if is.Action == policy.Accept {
				fit.add(of, matched)
			}
		}}
	q.Ask(&of, r.all())
	known[key] = fit
	return fit
}

// onPorts returns the rules that match the ports of flows to a pod. Of flows from it they depend on the other end.
func (r *Relation) onPorts(p *npc.Pod, d npc.Direction, of choice) choice {
	if d == npc.Egress {
		return of
	}
	matching := func(rules []cluster.Rule) (out []cluster.Rule) {
		for _, rule := range rules {
			if portsFit(rule.Rule, r.Service, p) {
				out = append(out, rule)
			}
		}
		return out
	}
	matches := choice{Isolated: of.Isolated, Allowing: matching(of.Allowing)}
	for t, rules := range of.Tiers {
		matches.Tiers[t] = matching(rules)
	}
	return matches
}

// key returns a text that identifies a choice.
func (r *Relation) key(of choice) string {
	key := []byte{byte(of.Isolated)}
	for _, rules := range append(of.Tiers[:], of.Allowing) {
		for _, rule := range rules {
			key = binary.AppendUvarint(key, 1+r.numbers[rule.Rule])
		}
		key = append(key, 0)
	}
	return string(key)
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

// reaches reports whether an end reaches another one that is not of the same pod, and whether that is not known because
// something could not be read.
func (r *Relation) reaches(from, to int) (allowed, unknown bool) {
	if r.ends[from].Alone || r.ends[to].Alone || r.Unreadable.Any() {
		v := r.explain(from, to)
		return v.Allowed, v.Unknown && r.Unreadable.Any()
	}
	return r.egress[from].has(to) && r.ingress[to].has(from), false
}

// explain returns the verdict between two ends. If both are of one pod, the second is that of another pod like it.
func (r *Relation) explain(from, to int) explain.Verdict {
	f := flow.Flow{From: r.ends[from].End, To: r.ends[to].End, Service: r.Service}
	if f.From.Pod == "" || f.From.Pod != f.To.Pod {
		return explain.Explain(r.View, f)
	}
	v, other := cluster.WithOther(r.View, f.To.Pod, []flow.End{f.To})
	f.To = other[0]
	return explain.Explain(v, f)
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
	a, b := r.classes[from], r.classes[to]
	flows, reached := 0, 0
	for i, x := range a.Ends {
		for j, y := range b.Ends {
			if x.Addr.IsValid() && y.Addr.IsValid() && x.Addr.Is4() != y.Addr.Is4() {
				continue
			}
			flows++
			if allowed, unknown := r.reaches(a.first+i, b.first+j); unknown {
				return CellUnknown
			} else if allowed {
				reached++
			}
		}
	}
	return Tally(flows, reached)
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
