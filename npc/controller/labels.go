package controller

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
)

// labelSet are labels, by key. It takes a third of the memory of a map.
type labelSet []label

type label struct{ key, value string }

// Lookup implements labels.Labels.
func (l *labelSet) Lookup(key string) (value string, exists bool) {
	for i := range *l {
		if (*l)[i].key == key {
			return (*l)[i].value, true
		}
	}
	return "", false
}

// Has implements labels.Labels.
func (l *labelSet) Has(key string) bool {
	_, ok := l.Lookup(key)
	return ok
}

// Get implements labels.Labels.
func (l *labelSet) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}

// equal reports whether a map has the same labels.
func (l *labelSet) equal(m map[string]string) bool {
	if len(*l) != len(m) {
		return false
	}
	for _, have := range *l {
		if value, ok := m[have.key]; !ok || value != have.value {
			return false
		}
	}
	return true
}

// labels makes a set of a map.
func (t *texts) labels(m map[string]string) labelSet {
	if len(m) == 0 {
		return nil
	}
	l := make(labelSet, 0, len(m))
	for k, v := range m {
		l = append(l, label{t.share(k), t.share(v)})
	}
	slices.SortFunc(l, func(a, b label) int { return strings.Compare(a.key, b.key) })
	return l
}

// maxTexts is how many texts are remembered: those that come again and again do so soon.
const maxTexts = 4096

// texts remembers texts and what pods of a kind or of a node have in common, so that equal ones share their memory.
type texts struct {
	known map[string]string
	ports map[npc.NamedPort][]npc.NamedPort // the only named port of a pod -> all of them
	hosts map[netip.Addr][]netip.Addr       // the only address of a pod's node -> all of them
}

func (t *texts) share(s string) string {
	if shared, ok := t.known[s]; ok {
		return shared
	}
	if t.known == nil || len(t.known) >= maxTexts {
		t.known = make(map[string]string)
	}
	s = strings.Clone(s) // not to keep what it was read with
	t.known[s] = s
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

// shareHosts returns the addresses of a node as they are remembered.
func (t *texts) shareHosts(addrs []netip.Addr) []netip.Addr {
	return shareOnly(&t.hosts, addrs, func(a netip.Addr) netip.Addr { return a })
}

// sharePorts returns the named ports of a pod as they are remembered.
func (t *texts) sharePorts(ports []npc.NamedPort) []npc.NamedPort {
	return shareOnly(&t.ports, ports, func(p npc.NamedPort) npc.NamedPort {
		p.Name = t.share(p.Name)
		return p
	})
}
