package established

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/npc/conntrack"
)

// aside are connections whose verdict takes many comparisons, by the namespace whose rules take them. Namespaces take
// turns, each with the connection that has waited longest. There are no more of them than the table had connections at
// the last look: those that it did not find any more, or that have become cheap, are left out.
type aside struct {
	waiting map[string][]conntrack.Entry
	turns   []string          // the namespaces that have some, the next one first
	found   map[string]uint64 // name of a connection -> the last look that found it
	look    uint64            // counts the looks
	// related are connections that share the verdict on one that waits, by its name. Connections of the addresses
	// in arrived end even if others are kept.
	related map[string][]conntrack.Entry
	arrived map[netip.Addr]int
}

// begin records that a look begins, about addresses that became known.
func (x *aside) begin(arrived map[netip.Addr]int) {
	x.look++
	clear(x.related)
	if len(x.turns) == 0 {
		clear(x.arrived)
	}
	maps.Copy(x.arrived, arrived)
}

// has reports whether a connection waits.
func (x *aside) has(name string) bool {
	_, ok := x.found[name]
	return ok
}

// stay has a connection wait on, if it does: a look found it.
func (x *aside) stay(name string) {
	if x.has(name) {
		x.found[name] = x.look
	}
}

// add has a connection wait, unless it does.
func (x *aside) add(e conntrack.Entry, namespace string) {
	if !x.has(e.Name) {
		if len(x.waiting[namespace]) == 0 {
			x.turns = append(x.turns, namespace)
		}
		x.waiting[namespace] = append(x.waiting[namespace], e)
	}
	x.found[e.Name] = x.look
}

// end records that a look has found all that there is.
func (x *aside) end() {
	gone := func(e conntrack.Entry) bool { return x.found[e.Name] != x.look }
	for namespace, all := range x.waiting {
		x.waiting[namespace] = slices.DeleteFunc(all, gone)
	}
	maps.DeleteFunc(x.found, func(_ string, look uint64) bool { return look != x.look })
	x.turns = slices.DeleteFunc(x.turns, x.without)
}

// without removes a namespace that has no connections, and reports whether it had none.
func (x *aside) without(namespace string) bool {
	if len(x.waiting[namespace]) > 0 {
		return false
	}
	delete(x.waiting, namespace)
	return true
}

// next removes and returns the connection whose turn it is, with its namespace. There must be one.
func (x *aside) next() (e conntrack.Entry, namespace string) {
	namespace = x.turns[0]
	e, x.waiting[namespace] = x.waiting[namespace][0], x.waiting[namespace][1:]
	delete(x.found, e.Name)
	if x.turns = x.turns[1:]; !x.without(namespace) {
		x.turns = append(x.turns, namespace)
	}
	return e, namespace
}
