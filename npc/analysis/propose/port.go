package propose

import (
	"cmp"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// ports is how the pods of a workload name their ports.
type ports struct {
	common map[flow.Service][]string        // the names that all pods have for a port, sorted
	of     map[portName]map[uint16]struct{} // the ports that any pod has under a name
}

type portName struct {
	protocol uint8
	name     string
}

// record takes up which names a recorded destination has for a port.
func (p *ports) record(s flow.Service, names []string) {
	if p.common == nil {
		p.common, p.of = map[flow.Service][]string{}, map[portName]map[uint16]struct{}{}
	}
	for _, name := range names {
		p.add(name, s)
	}
	if known, seen := p.common[s]; seen {
		p.common[s] = slices.DeleteFunc(known, func(name string) bool { return !slices.Contains(names, name) })
		return
	}
	p.common[s] = slices.Sorted(slices.Values(names))
}

// confirm takes up how a pod of manifests names its ports.
func (p *ports) confirm(all []npc.NamedPort) {
	for s, names := range p.common {
		p.common[s] = slices.DeleteFunc(names, func(name string) bool {
			return !slices.Contains(all, npc.NamedPort{Name: name, Protocol: s.Protocol, Port: s.Port})
		})
	}
	for _, n := range all {
		if p.of != nil {
			p.add(n.Name, flow.Service{Protocol: n.Protocol, Port: n.Port})
		}
	}
}

func (p *ports) add(name string, s flow.Service) {
	key := portName{s.Protocol, name}
	if p.of[key] == nil {
		p.of[key] = map[uint16]struct{}{}
	}
	p.of[key][s.Port] = struct{}{}
}

// item returns how a rule names a service of the workload: by a name that all its pods have for the port, and for no
// other one.
func (p *ports) item(s flow.Service) item {
	for _, name := range p.common[s] {
		if len(p.of[portName{s.Protocol, name}]) == 1 {
			return item{protocol: s.Protocol, name: name}
		}
	}
	return itemOf(s)
}

// item is what a rule has in its ports.
type item struct {
	protocol uint8
	name     string
	port     uint16
}

// isEverything reports whether the item stands for a rule without ports: a policy names TCP, UDP and SCTP alone.
func (i item) isEverything() bool { return i == item{} }

// itemOf returns a service by its number, or everything.
func itemOf(s flow.Service) item {
	if npc.APIProtocol(s.Protocol) == "" || s.Port == 0 {
		return item{}
	}
	return item{protocol: s.Protocol, port: s.Port}
}

// dnsItems are what a workload needs that asks DNS: long answers come over TCP, whether or not there were any.
func dnsItems() []item {
	return []item{{protocol: npc.TCP, port: 53}, {protocol: npc.UDP, port: 53}}
}

// compare orders the items of a rule.
func (i item) compare(o item) int {
	return cmp.Or(cmp.Compare(i.protocol, o.protocol), cmp.Compare(i.port, o.port), cmp.Compare(i.name, o.name))
}

// api returns the item as policies have it. It must not be everything.
func (i item) api() networkingv1.NetworkPolicyPort {
	protocol, port := npc.APIProtocol(i.protocol), intstr.FromInt32(int32(i.port))
	if i.name != "" {
		port = intstr.FromString(i.name)
	}
	return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port}
}
