package service

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// Target is the outcome of a connection to a Service.
type Target struct {
	// Service is the key of the Service, Via a text about the address or name by which it was found.
	Service string `json:"service"`
	Via     string `json:"via"`
	// Endpoints are those that the connection may reach, each with its port there.
	Endpoints []Endpoint `json:"endpoints"`
	// Notes are sentences for the user.
	Notes []string `json:"notes,omitempty"`
}

// Endpoint is one of the endpoints that a Service balances between.
type Endpoint struct {
	flow.End
	Service flow.Service `json:"port"`
}

// Flows returns the flows from some ends to each endpoint. Those to one endpoint are together, in all families.
func (t Target) Flows(from []flow.End) (out [][]flow.Flow) {
	groups := map[string]int{} // pod or address, and port -> its flows
	for _, e := range t.Endpoints {
		flows := flow.Between(from, []flow.End{e.End}, e.Service)
		if len(flows) == 0 {
			continue
		}
		for i := range flows {
			flows[i].ThroughService = true
		}
		key := e.Pod + " " + e.Service.String()
		if e.Pod == "" {
			key = e.String() + key
		}
		i, ok := groups[key]
		if !ok {
			i = len(out)
			groups[key] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], flows...)
	}
	return out
}

// String returns the target as lines of text.
func (t Target) String() string {
	var names, ports []string
	for _, e := range t.Endpoints {
		name := e.Pod
		if name == "" {
			name = e.Addr.String()
		}
		names, ports = append(names, name), append(ports, e.Service.String())
	}
	slices.Sort(names)
	slices.Sort(ports)
	text := fmt.Sprintf("%s: %s at %s\n", t.Via, spelling.Count(len(slices.Compact(names)), "endpoint"),
		strings.Join(slices.Compact(ports), ", "))
	for _, n := range t.Notes {
		text += "  " + n + "\n"
	}
	return text
}

func sortEndpoints(out []Endpoint) {
	slices.SortFunc(out, func(a, b Endpoint) int {
		return cmp.Or(strings.Compare(a.Pod, b.Pod), a.Addr.Compare(b.Addr))
	})
}
