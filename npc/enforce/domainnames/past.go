package domainnames

import (
	"slices"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// past is how long the kernel keeps that an address was learned, and keepAgain is when it is told again.
const (
	past      = naming.PastTimeout * time.Second
	keepAgain = past - 24*time.Hour
)

// remember remembers facts that the sets took, and has the kernel keep them for the next Learner.
func (l *Learner) remember(facts []fact) {
	l.forgotten = append(l.forgotten, l.Names.remember(facts)...)
	for _, f := range facts {
		l.unkept[element{f.list, f.addr}] = f.name
	}
}

// keepPast brings the sets of the past up to date. It takes place after verdicts, which do not wait for it: what a
// process has learned that ends before is in the other sets. What is refused, perhaps because the set is about to be
// made, is tried again.
func (l *Learner) keepPast(now time.Time) {
	add, remove := newOperations(ipset.Add), newOperations(ipset.Delete)
	for e, name := range l.unkept {
		if l.index.lists[e.list.Key] == e.list && e.list.kept[e.addr].Sub(now) < keepAgain {
			e.list.kept[e.addr] = now.Add(past)
			add.put(e.list.Past, e, ipset.Attr{Comment: name, Timeout: seconds(past)})
		}
	}
	for _, e := range l.forgotten {
		delete(e.list.kept, e.addr)
		remove.put(e.list.Past, e, ipset.Attr{})
	}
	known := l.unkept
	l.unkept, l.forgotten = map[element]string{}, nil
	ops := slices.Concat(add.ops, remove.ops)
	if len(ops) == 0 {
		return
	}
	err := l.sets.Apply(ops)
	l.note("past", err, "the kernel does not keep which addresses domain names had: connections may end at a restart")
	for _, failed := range failures(err, ops) {
		for _, el := range failed.Elements {
			if failed.Index < len(add.lists) && len(l.unkept) < maxAddressesAll {
				e := element{add.lists[failed.Index], el.Prefix.Addr()}
				delete(e.list.kept, e.addr)
				l.unkept[e] = known[e]
			}
		}
	}
}

// recall remembers the members of a set of the past.
func (l *Learner) recall(of *followed, members []ipset.Element, now time.Time) {
	own := newIndex(map[string]*followed{of.Key: of})
	var facts []fact
	for _, m := range members {
		if len(own.match(m.Comment)) > 0 {
			a := m.Prefix.Addr()
			of.kept[a] = now.Add(time.Duration(m.Timeout) * time.Second)
			facts = append(facts, fact{list: of, name: m.Comment, addr: a, until: now})
		}
	}
	l.forgotten = append(l.forgotten, l.Names.remember(facts)...)
}
