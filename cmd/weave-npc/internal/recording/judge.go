package recording

import (
	"net/netip"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/flows"
	"github.com/weave-npc/weave-npc/npc/traffic"
	"github.com/weave-npc/weave-npc/npc/verdict"
)

// Names tells whose addresses are.
type Names interface {
	// PodAt returns the pod that has an address, and whether there is one.
	PodAt(netip.Addr) (npc.Pod, bool)
	// NameOf returns "node" for an address of a node.
	NameOf(netip.Addr) string
	// IsLocal reports whether an address is that of a pod of this node.
	IsLocal(netip.Addr) bool
	// Judge appends what policies make of flows to out.
	Judge(flows []verdict.Flow, out []verdict.Verdict) []verdict.Verdict
}

// judge names the ends of connections, and the rule that decides.
type judge struct{ Names }

// Judge implements flows.Judge.
func (j judge) Judge(src, dst netip.Addr, s flow.Service) (from, to flows.End, portNames []string, v flows.Verdict, by []flows.Applied, concerned bool) {
	if !j.IsLocal(src) && !j.IsLocal(dst) {
		return from, to, nil, "", nil, false
	}
	from, _ = j.end(src)
	to, ports := j.end(dst)
	for _, p := range ports {
		if p.Protocol == s.Protocol && p.Port == s.Port {
			portNames = append(portNames, p.Name)
		}
	}
	got := j.Names.Judge([]verdict.Flow{{From: src, To: dst, Service: s}}, nil)[0]
	if v = flows.Denied; got.Allowed {
		v = flows.Allowed
	}
	if got.By != (verdict.By{}) {
		by = append(by, applied(got.By, got.Direction))
	}
	if got.Also != (verdict.By{}) {
		by = append(by, applied(got.Also, traffic.Ingress))
	}
	return from, to, portNames, v, by, true
}

func applied(by verdict.By, d traffic.Direction) flows.Applied {
	return flows.Applied{Rule: flows.Rule{Tier: by.Tier, Policy: by.Policy, Number: by.Number, Direction: d.String()}, Content: by.Content}
}

// end returns who has an address, and the named ports of a pod.
func (j judge) end(a netip.Addr) (flows.End, []npc.NamedPort) {
	p, ok := j.PodAt(a)
	if !ok {
		return flows.End{Addr: a, NodeAddr: j.NameOf(a) == "node"}, nil
	}
	workload := npc.Workload{Kind: "Pod", Name: p.Name}
	if p.Workload != nil {
		workload = *p.Workload
	}
	return flows.End{Namespace: p.Namespace, Workload: workload.String(), Pod: p.Name, Labels: p.Labels, Addr: a}, p.Ports
}
