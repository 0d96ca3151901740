package check

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// maxCandidates is how many pods that could be there an expectation is checked for at most, on each side.
const maxCandidates = 200_000

// candidate is what stands for all pods, or for all addresses, that get the same verdicts.
type candidate struct {
	flow.End
	// class is that of pods that are there; nil for other candidates.
	class *class
	// pod is nil for an address that belongs to no pod.
	pod *npc.Pod
	// of is the existing pod that the candidate would be another replica of, with another address; nil if there is
	// none.
	of *npc.Pod
	// bound is the service that names of the pod's ports stand for. The candidate is only asked about that one, if it
	// is set.
	bound flow.Service
}

// there returns the side's existing pods, and one of its free addresses for each set that policies distinguish.
func (x *side) there(peerRules []*policy.Rule) (out []candidate) {
	for _, c := range x.classes {
		if x.has(c.pod, c.ends[0].Addr, true) {
			out = append(out, candidate{End: c.ends[0], class: c, pod: c.pod})
		}
	}
	blocks := x.blocks(peerRules)
	for _, at := range x.places(blocks, func(a netip.Addr) bool {
		return !inBlocks(nowhere(), a) && x.has(nil, a, true)
	}) {
		out = append(out, candidate{End: flow.End{Addr: x.pick(at)}})
	}
	return out
}

// pick returns one address for sources and another one for destinations, if there are two.
func (x *side) pick(of place) netip.Addr {
	if x.direction == npc.Ingress {
		return of.second
	}
	return of.first
}

// possible returns the side's pods that could be there. It returns false if there are too many.
func (x *side) possible(peerRules []*policy.Rule, asks []ask) (out []candidate, ok bool) {
	selectors := x.selectors(peerRules)
	places := x.podPlaces(peerRules)
	variants := [][]npc.NamedPort{nil}
	bound := []flow.Service{{}}
	if x.direction == npc.Ingress {
		variants, bound = x.variants(asks, variants, bound)
	}
	for _, s := range x.scopes {
		for _, q := range s.templates {
			out = x.replicas(out, q, places)
		}
		if !s.any {
			continue
		}
		all, ok := x.combinedLabels(selectors[s.namespace])
		if !ok {
			return nil, false
		}
		for _, l := range all {
			for i, ports := range variants {
				q := &npc.Pod{Namespace: s.namespace, Name: x.name(len(out)), Labels: l, Ports: ports}
				for _, at := range places {
					if a := x.pick(at); x.has(q, a, false) {
						out = append(out,
							candidate{End: flow.End{Pod: q.Key(), Addr: a}, pod: q, bound: bound[i]})
					}
				}
			}
			if len(out) > maxCandidates {
				return nil, false
			}
		}
	}
	return out, true
}

// name returns a name that no existing pod can have.
func (x *side) name(n int) string { return x.direction.String() + " " + strconv.Itoa(n) }

// replicas adds replicas of a pod at all places.
func (x *side) replicas(out []candidate, of *npc.Pod, places []place) []candidate {
	q := &npc.Pod{Namespace: of.Namespace, Name: x.name(len(out)), Labels: of.Labels, Ports: of.Ports,
		Workload: of.Workload}
	for _, at := range places {
		out = append(out, candidate{End: flow.End{Pod: q.Key(), Addr: x.pick(at)}, pod: q, of: of})
	}
	return out
}

// combinedLabels returns labels for each set of selectors that some match.
func (p *Prover) combinedLabels(s *selectors) ([]map[string]string, bool) {
	slices.Sort(s.texts)
	text := strings.Join(s.texts, "\n")
	out, ok := p.combined[text]
	if !ok {
		if out, ok = combinations(s.all); !ok {
			return nil, false
		}
		p.combined[text] = out
	}
	return out, true
}

// variants adds names of ports: for each service that is asked about, each set of names that pods have for it and that
// rules or the question name.
func (x *side) variants(
	asks []ask, variants [][]npc.NamedPort, bound []flow.Service,
) ([][]npc.NamedPort, []flow.Service) {
	seen := map[flow.Service]bool{}
	for _, a := range asks {
		if seen[a.Service] {
			continue
		}
		seen[a.Service] = true
		for set := 1; set < 1<<len(a.names); set++ {
			var ports []npc.NamedPort
			for i, name := range a.names {
				if set&(1<<i) != 0 {
					ports = append(ports, npc.NamedPort{Name: name, Protocol: a.Protocol, Port: a.Port})
				}
			}
			variants, bound = append(variants, ports), append(bound, a.Service)
		}
	}
	return variants, bound
}
