package propose

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
)

// draftRule allows some ends some ports.
type draftRule struct {
	entries []*entry
	items   []item // sorted
}

// entry is what a rule has among its peers: a workload, the cluster's DNS or a range of addresses.
type entry struct {
	workload *workload
	dns      bool
	block    block
	items    []item // sorted
	seen     []*seen
}

// kinds of entries, in the order of their rules.
const (
	dnsKind = iota
	podKind
	blockKind
)

func (e *entry) kind() int {
	switch {
	case e.dns:
		return dnsKind
	case e.workload != nil:
		return podKind
	}
	return blockKind
}

// compare orders the entries of rules.
func (e *entry) compare(o *entry) int {
	switch c := cmp.Compare(e.kind(), o.kind()); {
	case c != 0 || e.dns:
		return c
	case e.workload != nil:
		return e.workload.compare(o.workload)
	}
	return cmp.Or(e.block.Addr().Compare(o.block.Addr()), cmp.Compare(e.block.Bits(), o.block.Bits()))
}

// covers reports whether the entry allows connections.
func (e *entry) covers(s *seen) bool {
	switch {
	case e.dns:
		return s.isDNS()
	case e.workload != nil && e.workload != s.workload, e.workload == nil && !e.block.covers(s):
		return false
	}
	return e.items[0].isEverything() || slices.Contains(e.items, s.item)
}

// covers reports whether a peer is an address in the block.
func (b block) covers(s *seen) bool {
	return s.workload == nil && b.Contains(s.addr) &&
		!slices.ContainsFunc(b.except, func(p netip.Prefix) bool { return p.Contains(s.addr) })
}

// rules returns the rules that allow what was seen in a direction, and nothing else that labels distinguish from it.
func rules(all []*seen, d npc.Direction, limit int, pods []netip.Addr) []draftRule {
	var entries []*entry
	addrs := map[string][]*entry{} // of single addresses with the same ports
	for _, e := range needed(all, d) {
		if e.kind() == blockKind {
			key := fmt.Sprint(e.items)
			addrs[key] = append(addrs[key], e)
			continue
		}
		entries = append(entries, e)
	}
	for _, same := range addrs {
		entries = append(entries, joined(same, limit, pods)...)
	}
	entries = indispensable(entries)
	slices.SortFunc(entries, (*entry).compare)
	var out []draftRule
	for _, e := range entries {
		i := slices.IndexFunc(out, func(r draftRule) bool {
			return r.entries[0].kind() == e.kind() && slices.Equal(r.items, e.items)
		})
		if i < 0 {
			i, out = len(out), append(out, draftRule{items: e.items})
		}
		out[i].entries = append(out[i].entries, e)
	}
	return out
}

// needed returns an entry for each peer, with all ports that it needs.
func needed(all []*seen, d npc.Direction) (entries []*entry) {
	type target struct {
		workload *workload
		dns      bool
		addr     netip.Addr
	}
	at := map[target]*entry{}
	for _, s := range all {
		t := target{workload: s.workload, addr: s.addr}
		if d == npc.Egress && s.isDNS() {
			t = target{dns: true}
		}
		e := at[t]
		if e == nil {
			e = &entry{workload: t.workload, dns: t.dns}
			at[t], entries = e, append(entries, e)
		}
		e.seen = append(e.seen, s)
		if e.items = append(e.items, s.item); t.dns {
			e.items = dnsItems()
		}
	}
	for _, e := range entries {
		if slices.ContainsFunc(e.items, item.isEverything) {
			e.items = []item{{}}
		}
		slices.SortFunc(e.items, item.compare)
		e.items = slices.Compact(e.items)
	}
	return entries
}

// joined returns the entries of single addresses as ranges, at most a limit.
func joined(single []*entry, limit int, pods []netip.Addr) (out []*entry) {
	var addrs []netip.Addr
	for _, e := range single {
		addrs = append(addrs, e.seen[0].addr)
	}
	for _, b := range group(addrs, pods, limit) {
		e := &entry{block: b, items: single[0].items}
		for _, s := range single {
			if b.covers(s.seen[0]) {
				e.seen = append(e.seen, s.seen...)
			}
		}
		out = append(out, e)
	}
	return out
}

// indispensable returns the entries without those whose connections others allow too, the narrowest first: a range that
// stands for many addresses may contain one that has an entry of its own.
func indispensable(entries []*entry) []*entry {
	slices.SortStableFunc(entries, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.kind(), b.kind()), cmp.Compare(b.block.Bits(), a.block.Bits()))
	})
	for i := 0; i < len(entries); i++ {
		others := slices.Delete(slices.Clone(entries), i, i+1)
		instead := make([]*entry, len(entries[i].seen))
		for n, s := range entries[i].seen {
			if o := slices.IndexFunc(others, func(o *entry) bool { return o.covers(s) }); o >= 0 {
				instead[n] = others[o]
			}
		}
		if slices.Contains(instead, nil) {
			continue
		}
		for n, s := range entries[i].seen {
			instead[n].seen = append(instead[n].seen, s)
		}
		entries = others
		i--
	}
	return entries
}
