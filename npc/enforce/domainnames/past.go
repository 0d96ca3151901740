package domainnames

import (
	"slices"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// past is how long the kernel keeps that an address was learned. It is written again once less than keepAgain is left.
const (
	past      = naming.PastTimeout * time.Second
	keepAgain = past - 24*time.Hour
)

// pastSets has the kernel keep for the next Learner what was learned.
type pastSets struct {
	sets  sets
	names *Names
	// unkept are facts that the sets of the past are to have, and forgotten is what they are to lose.
	unkept    map[element]string // -> a name
	forgotten []element
	retry     time.Time // when what was refused is tried again
}

// remember remembers facts that the sets took, if the lists are those of a generation; it reports whether they are.
func (m *pastSets) remember(facts []fact, generation uint64) bool {
	forgotten, current := m.names.remember(facts, generation)
	if !current {
		return false
	}
	m.forgotten = append(m.forgotten, forgotten...)
	for _, f := range facts {
		m.unkept[element{f.list, f.addr}] = f.name
	}
	return true
}

// keep brings the sets of the past of some lists up to date. It takes place after verdicts, which do not wait for it:
// what a process has learned that ends before is in the other sets. What is refused is tried again at retry.
func (m *pastSets) keep(lists map[string]*followed, now time.Time) error {
	if len(m.unkept)+len(m.forgotten) == 0 {
		return nil
	}
	add, remove := newOperations(ipset.Add), newOperations(ipset.Delete)
	for e, name := range m.unkept {
		if lists[e.list.Key] == e.list && e.list.kept[e.addr].Sub(now) < keepAgain {
			e.list.kept[e.addr] = now.Add(past)
			add.put(e.list.Past, e, ipset.Attr{Comment: name, Timeout: seconds(past)})
		}
	}
	for _, e := range m.forgotten {
		delete(e.list.kept, e.addr)
		remove.put(e.list.Past, e, ipset.Attr{})
	}
	known := m.unkept
	m.unkept, m.forgotten = map[element]string{}, nil
	ops := slices.Concat(add.ops, remove.ops)
	if len(ops) == 0 {
		return nil
	}
	err := m.sets.Apply(ops)
	for _, failed := range failures(err, ops) {
		m.retry = now.Add(every)
		for _, el := range failed.Elements {
			if failed.Index < len(add.lists) && len(m.unkept) < maxAddressesAll {
				e := element{add.lists[failed.Index], el.Prefix.Addr()}
				delete(e.list.kept, e.addr)
				m.unkept[e] = known[e]
			}
		}
	}
	return err
}

// recall remembers the members of a set of the past.
func (m *pastSets) recall(of *followed, members []ipset.Element, now time.Time) {
	own := newIndex(map[string]*followed{of.Key: of})
	var facts []fact
	for _, e := range members {
		if len(own.match(e.Comment)) > 0 {
			a := e.Prefix.Addr()
			of.kept[a] = now.Add(time.Duration(e.Timeout) * time.Second)
			facts = append(facts, fact{list: of, name: e.Comment, addr: a, until: now})
		}
	}
	forgotten, _ := m.names.remember(facts, anyGeneration)
	m.forgotten = append(m.forgotten, forgotten...)
}
