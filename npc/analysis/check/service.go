package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/check/expectation"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// maxNames is how many names of ports may stand for one service at most.
const maxNames = 6

// ask is a service that is asked about. It stands for those that rules treat alike.
type ask struct {
	flow.Service
	// name is the port name that a destination must have for the service; empty for all destinations.
	name string
	// names are those of rules and of the expectation that pods have for the service, in order.
	names []string
}

// asks returns what an expectation asks about.
func (p *Prover) asks(ports []expectation.Port, rules []*policy.Rule) (out []ask, err error) {
	edges := flow.Split{} // where rules begin to match, or have ended to
	names := map[string]bool{}
	for _, r := range rules {
		for _, port := range r.Ports {
			edges.Add(port.Protocol, port.First, port.Last)
			names[port.Name] = true
		}
	}
	for _, port := range ports {
		names[port.Name] = true
	}
	delete(names, "")
	for name := range names {
		for _, s := range p.numbers[name] {
			edges.Add(s.Protocol, s.Port, s.Port)
		}
	}
	if len(ports) == 0 {
		for _, protocol := range npc.PortProtocols {
			ports = append(ports, expectation.Port{Protocol: protocol, First: 1, Last: flow.LastPort})
		}
		ports = append(ports, expectation.Port{Protocol: npc.ICMP})
	}
	sorted := edges.Services()
	for _, port := range ports {
		services, err := p.services(port, sorted)
		if err != nil {
			return nil, err
		}
		for _, s := range services {
			out = append(out, ask{s, port.Name, p.namesFor(s, names)})
		}
	}
	return out, nil
}

// services returns one of each kind of those that a port of an expectation stands for.
func (p *Prover) services(port expectation.Port, edges []flow.Service) (out []flow.Service, err error) {
	if port.Name == "" {
		out = append(out, flow.Service{Protocol: port.Protocol, Port: port.First})
		for _, e := range edges {
			if e.Protocol == port.Protocol && e.Port > port.First && e.Port <= port.Last {
				out = append(out, e)
			}
		}
		return out, nil
	}
	for _, s := range p.numbers[port.Name] {
		if s.Protocol == port.Protocol {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		near := spelling.DidYouMean(port.Name, maps.Keys(p.numbers))
		if of := p.numbers[port.Name]; len(of) > 0 {
			near = fmt.Sprintf("; did you mean %s/%s?", npc.ProtocolName(of[0].Protocol), port.Name)
		}
		return nil, errors.Errorf("no pod has a %s port of the name %s%s", npc.ProtocolName(port.Protocol), port.Name,
			near)
	}
	return out, nil
}

// namesFor returns the names that pods have for a service.
func (p *Prover) namesFor(s flow.Service, names map[string]bool) (out []string) {
	for name := range names {
		if slices.Contains(p.numbers[name], s) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// named reports whether a pod has a name for a service. No name is one that everybody has.
func (a ask) named(q *npc.Pod) bool {
	return a.name == "" ||
		q != nil && slices.Contains(q.Ports, npc.NamedPort{Name: a.name, Protocol: a.Protocol, Port: a.Port})
}
