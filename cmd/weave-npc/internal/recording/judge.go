package recording

import (
	"net/netip"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flows"
)

// Names tells whose addresses are.
type Names interface {
	// PodAt returns the pod that has an address, and whether there is one.
	PodAt(netip.Addr) (npc.Pod, bool)
	// NameOf returns "node" for an address of a node.
	NameOf(netip.Addr) string
	// IsLocal reports whether an address is that of a pod of this node.
	IsLocal(netip.Addr) bool
}

// judge names the ends of connections whose verdict is known. It does not know by which rule.
type judge struct {
	names   Names
	verdict flows.Verdict
}

// Judge implements flows.Judge.
func (j judge) Judge(src, dst netip.Addr, s flow.Service) (from, to flows.End, portNames []string, v flows.Verdict, by *flows.Rule, concerned bool) {
	if !j.names.IsLocal(src) && !j.names.IsLocal(dst) {
		return from, to, nil, "", nil, false
	}
	from, _ = j.end(src)
	to, ports := j.end(dst)
	for _, p := range ports {
		if p.Protocol == s.Protocol && p.Port == s.Port {
			portNames = append(portNames, p.Name)
		}
	}
	return from, to, portNames, j.verdict, nil, true
}

// end returns who has an address, and the named ports of a pod.
func (j judge) end(a netip.Addr) (flows.End, []npc.NamedPort) {
	p, ok := j.names.PodAt(a)
	if !ok {
		return flows.End{Addr: a, NodeAddr: j.names.NameOf(a) == "node"}, nil
	}
	workload := npc.Workload{Kind: "Pod", Name: p.Name}
	if p.Workload != nil {
		workload = *p.Workload
	}
	return flows.End{Namespace: p.Namespace, Workload: workload.String(), Pod: p.Name, Labels: p.Labels, Addr: a}, p.Ports
}
