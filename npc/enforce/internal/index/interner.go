package index

import (
	"net/netip"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/policy/labelset"
)

// interner remembers texts and what pods of a kind or of a node have in common, so that equal ones share their memory.
type interner struct {
	labelset.Interner
	workloads map[npc.Workload]*npc.Workload
	ports     map[npc.NamedPort][]npc.NamedPort // the only named port of a pod -> all of them
	hosts     map[netip.Addr][]netip.Addr       // the only address of a pod's node -> all of them
}

// shareOnly returns a list of one element that is remembered as equal, or the list.
func shareOnly[E comparable](known *map[E][]E, list []E, resolve func(E) E) []E {
	if len(list) != 1 {
		return list
	}
	if shared, ok := (*known)[list[0]]; ok {
		return shared
	}
	if *known == nil || len(*known) >= labelset.MaxTexts {
		*known = make(map[E][]E)
	}
	e := resolve(list[0])
	(*known)[e] = []E{e}
	return (*known)[e]
}

// shareWorkload returns a workload as it is remembered.
func (i *interner) shareWorkload(w *npc.Workload) *npc.Workload {
	if w == nil {
		return nil
	}
	if shared, ok := i.workloads[*w]; ok {
		return shared
	}
	if i.workloads == nil || len(i.workloads) >= labelset.MaxTexts {
		i.workloads = make(map[npc.Workload]*npc.Workload)
	}
	w = &npc.Workload{Kind: i.Share(w.Kind), Name: i.Share(w.Name)}
	i.workloads[*w] = w
	return w
}

// shareHosts returns the addresses of a node as they are remembered.
func (i *interner) shareHosts(addrs []netip.Addr) []netip.Addr {
	return shareOnly(&i.hosts, addrs, func(a netip.Addr) netip.Addr { return a })
}

// sharePorts returns the named ports of a pod as they are remembered.
func (i *interner) sharePorts(ports []npc.NamedPort) []npc.NamedPort {
	return shareOnly(&i.ports, ports, func(p npc.NamedPort) npc.NamedPort {
		p.Name = i.Share(p.Name)
		return p
	})
}
