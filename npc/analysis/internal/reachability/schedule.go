package reachability

import (
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// schedule finds the services that each row and each column has to be asked about: the first of each protocol, and
// those where a range of ports of one of its rules begins or has ended.
func (w *scan) schedule() {
	e := &edges{at: make(map[flow.Service]int, len(w.services))}
	for k, s := range w.services {
		e.at[s] = k
		if k == 0 || w.services[k-1].Protocol != s.Protocol {
			e.starts = append(e.starts, k)
		}
	}
	for state, v := range w.views {
		e.named[state] = v.numbers()
	}
	w.askRows, w.askCols = make([][]int, len(w.services)), make([][]int, len(w.services))
	for i, class := range w.rows {
		for _, k := range e.of(w.subjects, &w.classes[class], npc.Egress) {
			w.askRows[k] = append(w.askRows[k], i)
		}
	}
	for j, class := range w.columns {
		for _, k := range e.of(w.subjects, &w.classes[class], npc.Ingress) {
			w.askCols[k] = append(w.askCols[k], j)
		}
	}
}

// edges finds the services where rules begin or cease to match.
type edges struct {
	at     map[flow.Service]int
	starts []int                              // of protocols
	named  [states]map[string][]npc.NamedPort // name -> the ports that pods have under it
	found  []int
}

// of returns the services that a class has to be asked about in a direction, sorted. A class that is asked about alone
// has the services of all pods that claim its addresses, in both directions.
func (e *edges) of(s *subjects, c *subjectClass, d npc.Direction) []int {
	e.found = slices.Clone(e.starts)
	for w, v := range s.views {
		for f := range families {
			own := c.ends[w][f]
			if p := v.Pods[own.Pod]; p != nil {
				e.add(w, v.Applied(p, d), d, p)
			}
			if !own.Alone {
				continue
			}
			for _, p := range s.claimants[w][own.Addr] {
				for _, d := range npc.Directions {
					e.add(w, v.Applied(p, d), d, p)
				}
			}
		}
	}
	slices.Sort(e.found)
	return slices.Compact(e.found)
}

// add adds the edges of the policies that select a pod.
func (e *edges) add(state int, of choice, d npc.Direction, p *npc.Pod) {
	for r := range of.All() {
		for _, port := range r.Ports {
			if port.Name == "" {
				e.addRange(port.Protocol, port.First, port.Last)
				continue
			}
			ports := p.Ports
			if d == npc.Egress {
				ports = e.named[state][port.Name]
			}
			e.addNamed(port, ports)
		}
	}
}

// addNamed adds the numbers that a name has among some ports.
func (e *edges) addNamed(port policy.Port, ports []npc.NamedPort) {
	for _, n := range ports {
		if n.Name == port.Name && port.HasProtocol(n.Protocol) {
			e.addRange(n.Protocol, n.Port, n.Port)
		}
	}
}

// addRange adds the edges of a range of ports; those of all ports are starts.
func (e *edges) addRange(protocol uint8, first, last uint16) {
	if first == 0 {
		return
	}
	if k, ok := e.at[flow.Service{Protocol: protocol, Port: first}]; ok {
		e.found = append(e.found, k)
	}
	if k, ok := e.at[flow.Service{Protocol: protocol, Port: last + 1}]; ok && last < flow.LastPort {
		e.found = append(e.found, k)
	}
}

// numbers returns the ports that pods have under the names that rules name.
func (v *view) numbers() map[string][]npc.NamedPort {
	seen := map[npc.NamedPort]bool{}
	all := map[string][]npc.NamedPort{}
	for _, p := range v.Pods {
		for _, port := range p.Ports {
			if v.ports[port.Name] && !seen[port] {
				seen[port] = true
				all[port.Name] = append(all[port.Name], port)
			}
		}
	}
	return all
}
