package index

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
)

// maxTexts is how many texts are remembered: those that come again and again do so soon.
const maxTexts = 4096

// interner remembers texts and what pods of a kind or of a node have in common, so that equal ones share their memory.
type interner struct {
	known     map[string]string
	workloads map[npc.Workload]*npc.Workload
	ports     map[npc.NamedPort][]npc.NamedPort // the only named port of a pod -> all of them
	hosts     map[netip.Addr][]netip.Addr       // the only address of a pod's node -> all of them
}

func (i *interner) share(s string) string {
	if shared, ok := i.known[s]; ok {
		return shared
	}
	if i.known == nil || len(i.known) >= maxTexts {
		i.known = make(map[string]string)
	}
	s = strings.Clone(s) // not to keep what it was read with
	i.known[s] = s
	return s
}

// shareOnly returns a list of one element that is remembered as equal, or the list.
func shareOnly[E comparable](known *map[E][]E, list []E, settle func(E) E) []E {
	if len(list) != 1 {
		return list
	}
	if shared, ok := (*known)[list[0]]; ok {
		return shared
	}
	if *known == nil || len(*known) >= maxTexts {
		*known = make(map[E][]E)
	}
	e := settle(list[0])
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
	if i.workloads == nil || len(i.workloads) >= maxTexts {
		i.workloads = make(map[npc.Workload]*npc.Workload)
	}
	w = &npc.Workload{Kind: i.share(w.Kind), Name: i.share(w.Name)}
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
		p.Name = i.share(p.Name)
		return p
	})
}

// labels makes a set of a map.
func (i *interner) labels(m map[string]string) labelSet {
	if len(m) == 0 {
		return nil
	}
	l := make(labelSet, 0, len(m))
	for k, v := range m {
		l = append(l, label{i.share(k), i.share(v)})
	}
	slices.SortFunc(l, func(a, b label) int { return strings.Compare(a.key, b.key) })
	return l
}
