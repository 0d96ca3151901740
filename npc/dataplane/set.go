package dataplane

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// Set is an ipset as it is desired, beside what is known of the kernel's. The difference is kept as it arises, so that a
// plan looks at nothing that did not change.
type Set struct {
	ipset.Set // by the name that it has in the kernel
	table     *Table
	// key is the name that rules are made with. It is the kernel's too, unless somebody else's set is in the way.
	key string
	// found is the set by that name that the kernel has, if it has one.
	found ipset.Header
	// about describes for humans what the set holds.
	about string
	// fixed is set if every node has the set.
	fixed bool
	// wanted is set while the set is desired, exists while the kernel has it.
	wanted, exists bool
	// target is where packets of members are sent; nil if nowhere.
	target *target
	// foreignLayout is the layout of the chains that were found with the set, if it is another version's.
	foreignLayout string
	// rejected is why the kernel did not take the set.
	rejected string
	// destroyNext is set once a plan that collects garbage has passed since the set is not wanted: the next one destroys it.
	destroyNext bool
	entries     map[ipset.Entry]State
	// dirty are the entries that differ between what is desired and the kernel.
	dirty map[ipset.Entry]struct{}
	// touched is the table's count of changes when the set was last marked for the next plan.
	touched uint64
}

// target is where a set's members are sent: to the rules of a shard, or to a node of the dispatch tree.
type target struct {
	chain     *Chain
	direction traffic.Direction
	// height is 0 for the rules of a shard, and for a node more than for the nodes below it.
	height int
}

// State is one entry of a set, desired or in the kernel.
type State struct {
	Want, Have     ipset.Attr
	Wanted, Exists bool
}

func (e State) clean() bool {
	return e.Wanted == e.Exists && (!e.Wanted || e.Want == e.Have)
}

func newSet(t *Table, s ipset.Set, key string) *Set {
	return &Set{Set: s, key: key, table: t, entries: map[ipset.Entry]State{}, dirty: map[ipset.Entry]struct{}{}}
}

// Key returns the name by which rules refer to the set.
func (s *Set) Key() string { return s.key }

// About returns what the set holds, for humans.
func (s *Set) About() string { return s.about }

// Family returns the family whose table the set belongs to.
func (s *Set) Family() traffic.Family { return s.table.Family }

// Rejected returns why the kernel did not take the set; empty if it did.
func (s *Set) Rejected() string { return s.rejected }

// State returns the state of an entry.
func (s *Set) State(e ipset.Entry) State { return s.entries[e] }

// States yields every entry that is desired or in the kernel.
func (s *Set) States() iter.Seq2[ipset.Entry, State] { return maps.All(s.entries) }

// Differences yields the entries that differ between what is desired and the kernel.
func (s *Set) Differences() iter.Seq2[ipset.Entry, State] {
	return func(yield func(ipset.Entry, State) bool) {
		for e := range s.dirty {
			if !yield(e, s.entries[e]) {
				return
			}
		}
	}
}

// Dispatch records that packets of members are sent to a chain, at a height above the rules that they lead to (0 for those rules).
func (s *Set) Dispatch(to *Chain, d traffic.Direction, height int) {
	s.target = &target{chain: to, direction: d, height: height}
}

// height returns how far the set is from the rules; less than 0 if its members are sent nowhere.
func (s *Set) height() int {
	if s.target == nil {
		return -1
	}
	return s.target.height
}

// Add makes an entry desired. Adding it again with another comment changes the comment.
func (s *Set) Add(e ipset.Entry, a ipset.Attr) {
	st := s.entries[e]
	s.table.hold.accountFor(s, e)
	st.Want, st.Wanted = a, true
	s.store(e, st)
}

// Remove makes an entry no longer desired.
func (s *Set) Remove(e ipset.Entry) {
	st, ok := s.entries[e]
	if !ok {
		return
	}
	st.Want, st.Wanted = ipset.Attr{}, false
	s.store(e, st)
}

// Replace makes these entries desired and no others.
func (s *Set) Replace(want map[ipset.Entry]ipset.Attr) {
	for e := range s.entries {
		if _, ok := want[e]; !ok {
			s.Remove(e)
		}
	}
	for e, a := range want {
		s.Add(e, a)
	}
}

// Drop makes the set no longer desired, and with it none of its entries.
func (s *Set) Drop() {
	s.wanted = false
	s.table.hold.keepNeeded(s)
	for e := range s.entries {
		s.Remove(e)
	}
	if !s.exists {
		s.table.remove(s)
		return
	}
	s.table.touch(s)
}

// store stores an entry's state and keeps dirty true to it.
func (s *Set) store(e ipset.Entry, st State) {
	if !st.Wanted && !st.Exists {
		delete(s.entries, e)
		delete(s.dirty, e)
		return
	}
	s.entries[e] = st
	if st.clean() {
		delete(s.dirty, e)
		return
	}
	s.dirty[e] = struct{}{}
	s.table.touch(s)
}

// have records what the kernel has of an entry.
func (s *Set) have(e ipset.Entry, a ipset.Attr, exists bool) {
	st := s.entries[e]
	st.Have, st.Exists = a, exists
	s.store(e, st)
}

// load takes over what the kernel holds of the set; nil means that there is none.
func (s *Set) load(l *ipset.Listing) {
	s.exists = l != nil
	s.unload()
	if l != nil {
		s.found = l.Header
	}
	if l != nil && (!s.wanted || sameKind(s.Set, l.Set)) {
		for _, m := range l.Members {
			s.have(m.Entry, m.Attr, true)
		}
	}
	s.table.touch(s)
}

// unload records that the kernel's set has none of the entries.
func (s *Set) unload() {
	for e, st := range s.entries {
		if st.Exists {
			s.have(e, ipset.Attr{}, false)
		}
	}
}

// elements returns the given entries with what is desired of them, in the order of their text.
func (s *Set) elements(entries []ipset.Entry) []ipset.Element {
	out := make([]ipset.Element, 0, len(entries))
	for _, e := range entries {
		out = append(out, ipset.Element{Entry: e, Attr: s.entries[e].Want})
	}
	slices.SortFunc(out, func(a, b ipset.Element) int { return compareEntries(a.Entry, b.Entry) })
	return out
}

func compareEntries(a, b ipset.Entry) int {
	return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()),
		cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Set, b.Set))
}

// count returns the number of members that the kernel has.
func (s *Set) count() int {
	n := len(s.entries)
	for e := range s.dirty {
		if !s.entries[e].Exists {
			n--
		}
	}
	return n
}
