package reachability

import (
	"math/bits"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Sample is sources and destinations whose policies decide alone: pods that own their addresses, which are no node's,
// and addresses of no pod and no node. Several may have one address, as no two of them are together in one cluster.
type Sample struct {
	// sources has the sources as the other ends of ingress rules, destinations the destinations as those of egress
	// rules.
	sources, destinations *evaluation
	ingress, egress       []*choice // of destinations and of sources; nil as long as they were not asked for
	// families holds the sources that have flows to IPv4 and to IPv6 addresses.
	families [len(npc.Families)]endSet
}

// NewSample returns a sample of the ends of pods of a view, and of addresses.
func NewSample(v *cluster.View, from, to []flow.End) *Sample {
	s := &Sample{sources: sampled(v, from), destinations: sampled(v, to), ingress: make([]*choice, len(to)),
		egress: make([]*choice, len(from))}
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
		e.ends = append(e.ends, end{End: of, namespace: namespace})
		e.byNamespace[namespace] = append(e.byNamespace[namespace], i)
	}
	return e
}

// selected returns the policies that select the pod of an end, and numbers their rules.
func (e *evaluation) selected(i int, d npc.Direction, peers *evaluation) *choice {
	of := e.choice(e.pod(i), d)
	number := func(r *policy.Rule) {
		if _, known := peers.numbers[r]; !known {
			peers.numbers[r] = uint64(len(peers.numbers))
		}
	}
	for _, r := range of.rules {
		number(r)
	}
	for _, rules := range of.tiers {
		for _, r := range rules {
			number(r.Rule)
		}
	}
	return &of
}

// Answers is which sources of a sample reach which destinations, for one service.
type Answers struct {
	*Sample
	flow.Service
	ingress, egress           []endSet // of destinations: sources; of sources: destinations
	hasIngress, hasEgress     []bool   // which were asked for
	knownIngress, knownEgress map[string]endSet
}

// Ask returns the answers for a service. They are found when they are asked for.
func (s *Sample) Ask(service flow.Service) *Answers {
	from, to := len(s.egress), len(s.ingress)
	return &Answers{Sample: s, Service: service, ingress: make([]endSet, to), hasIngress: make([]bool, to),
		egress:    make([]endSet, from),
		hasEgress: make([]bool, from), knownIngress: map[string]endSet{}, knownEgress: map[string]endSet{}}
}

// from returns the sources that the policies of a destination allow.
func (a *Answers) from(to int) endSet {
	pod := a.destinations.pod(to)
	if a.hasIngress[to] || pod == nil {
		return a.ingress[to]
	}
	if a.Sample.ingress[to] == nil {
		a.Sample.ingress[to] = a.destinations.selected(to, npc.Ingress, a.sources)
	}
	r := &Relation{evaluation: a.sources, Service: a.Service}
	a.ingress[to], a.hasIngress[to] = r.side(pod, npc.Ingress, *a.Sample.ingress[to], a.knownIngress), true
	return a.ingress[to]
}

// to returns the destinations that the policies of a source allow.
func (a *Answers) to(from int) endSet {
	pod := a.sources.pod(from)
	if a.hasEgress[from] || pod == nil {
		return a.egress[from]
	}
	if a.Sample.egress[from] == nil {
		a.Sample.egress[from] = a.sources.selected(from, npc.Egress, a.destinations)
	}
	r := &Relation{evaluation: a.destinations, Service: a.Service}
	a.egress[from], a.hasEgress[from] = r.side(pod, npc.Egress, *a.Sample.egress[from], a.knownEgress), true
	return a.egress[from]
}

// Find returns a source and a destination of one family between which policies allow the service, or deny it, and that
// are wanted.
func (a *Answers) Find(allowed bool, wanted func(from, to int) bool) (from, to int, found bool) {
	for to := range a.Sample.ingress {
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
