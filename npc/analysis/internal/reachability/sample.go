package reachability

import (
	"math/bits"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// Sample is sources and destinations whose policies decide alone: pods that own their addresses, which are no node's,
// and addresses of no pod and no node. Several may have one address, as no two of them are together in one cluster.
type Sample struct {
	// sources has the sources as the other ends of ingress rules, destinations the destinations as those of egress
	// rules.
	sources, destinations *evaluation
	// choices are what policies select, for ingress of destinations, for egress of sources; nil before it is asked for.
	choices [len(npc.Directions)][]*choice
	// families holds the sources that have flows to IPv4 and to IPv6 addresses.
	families [len(npc.Families)]endSet
}

// NewSample returns a sample of the ends of pods of a view, and of addresses.
func NewSample(v *cluster.View, from, to []flow.End) *Sample {
	s := &Sample{sources: sampled(v, from), destinations: sampled(v, to)}
	s.choices = [...][]*choice{npc.Ingress: make([]*choice, len(to)), npc.Egress: make([]*choice, len(from))}
	for _, f := range npc.Families {
		s.families[f] = s.sources.newSet()
		for i, e := range from {
			if !e.Addr.IsValid() || npc.FamilyOf(e.Addr) == f {
				s.families[f][i/64] |= 1 << (i % 64)
			}
		}
	}
	return s
}

func sampled(v *cluster.View, ends []flow.End) *evaluation {
	e := newEvaluation(&Partition{}, &view{View: v})
	for i, of := range ends {
		namespace := ""
		if p := v.Pods[of.Pod]; p != nil {
			namespace = p.Namespace
		}
		e.ends = append(e.ends, End{End: of, namespace: namespace})
		e.byNamespace[namespace] = append(e.byNamespace[namespace], i)
	}
	return e
}

// selected returns the policies that select the pod of an end, and numbers their rules.
func (e *evaluation) selected(i int, d npc.Direction, peers *evaluation) *choice {
	of := e.Applied(e.pod(i), d)
	for r := range of.All() {
		if _, known := peers.numbers[r.Rule]; !known {
			peers.numbers[r.Rule] = uint64(len(peers.numbers))
		}
	}
	return &of
}

// Answers is which sources of a sample reach which destinations, for one service.
type Answers struct {
	*Sample
	flow.Service
	sides [len(npc.Directions)]answers
}

// answers are, for ingress, the sources that reach each destination, and for egress the destinations of each source.
type answers struct {
	sets  []endSet
	asked []bool // which sets are known
	known map[string]endSet
}

// Ask returns the answers for a service. They are found when they are asked for.
func (s *Sample) Ask(service flow.Service) *Answers {
	a := &Answers{Sample: s, Service: service}
	for d, of := range s.choices {
		a.sides[d] = answers{make([]endSet, len(of)), make([]bool, len(of)), map[string]endSet{}}
	}
	return a
}

// from returns the sources that the policies of a destination allow.
func (a *Answers) from(to int) endSet { return a.side(npc.Ingress, a.destinations, to, a.sources) }

// to returns the destinations that the policies of a source allow.
func (a *Answers) to(from int) endSet { return a.side(npc.Egress, a.sources, from, a.destinations) }

func (a *Answers) side(d npc.Direction, ends *evaluation, i int, peers *evaluation) endSet {
	side, choice := &a.sides[d], &a.choices[d][i]
	pod := ends.pod(i)
	if side.asked[i] || pod == nil {
		return side.sets[i]
	}
	if *choice == nil {
		*choice = ends.selected(i, d, peers)
	}
	r := &Relation{evaluation: peers, Service: a.Service}
	side.sets[i], side.asked[i] = r.side(pod, d, **choice, side.known), true
	return side.sets[i]
}

// Find returns a source and a destination of one family between which policies allow the service, or deny it, and that
// are wanted.
func (a *Answers) Find(allowed bool, wanted func(from, to int) bool) (from, to int, found bool) {
	for to := range a.choices[npc.Ingress] {
		admitted := a.from(to)
		for w := range a.families[0] {
			word := a.family(to, w)
			if allowed {
				word &= admitted.word(w)
			}
			for ; word != 0; word &= word - 1 {
				from := w*64 + bits.TrailingZeros64(word)
				if a.Allowed(from, to) == allowed && wanted(from, to) {
					return from, to, true
				}
			}
		}
	}
	return 0, 0, false
}

// family returns a word of the set of sources that have flows to a destination.
func (a *Answers) family(to, w int) uint64 {
	if addr := a.destinations.ends[to].Addr; addr.IsValid() {
		return a.families[npc.FamilyOf(addr)][w]
	}
	return a.families[npc.IPv4][w] | a.families[npc.IPv6][w]
}

// Allowed reports whether policies allow the service between a source and a destination, which have an address of one
// family.
func (a *Answers) Allowed(from, to int) bool { return a.from(to).has(from) && a.to(from).has(to) }
