// Package members tracks the desired entries of one set, and what is known of the kernel's.
//
// It keeps the difference up to date, so that a plan does not look at unchanged entries. It knows neither what the
// entries are for nor who wants them, plans nothing and touches no kernel.
//
//	m := members.New(new(int))
//	m.Want(e, ipset.Attr{Comment: "shop/web"}) // true: desired and kernel differ about it
//	for e, st := range m.Differences() {       // the kernel takes it
//		m.Have(e, st.Want)
//	}
package members

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
)

// State is what is desired of an entry, and what the kernel has of it.
type State struct {
	Want, Have     ipset.Attr
	Wanted, Exists bool
}

func (s State) clean() bool {
	return s.Wanted == s.Exists && (!s.Wanted || s.Want == s.Have)
}

// Members are the entries of a set that are desired or in the kernel.
type Members struct {
	states map[ipset.Entry]State
	// dirty are the entries that differ between what is desired and the kernel.
	dirty map[ipset.Entry]struct{}
	// total counts the entries of several sets that are desired.
	total *int
}

// New returns the members of a set that has none. total counts those that become desired.
func New(total *int) Members {
	return Members{states: map[ipset.Entry]State{}, dirty: map[ipset.Entry]struct{}{}, total: total}
}

// State returns the state of an entry.
func (m Members) State(e ipset.Entry) State { return m.states[e] }

// States yields every entry that is desired or in the kernel.
func (m Members) States() iter.Seq2[ipset.Entry, State] { return maps.All(m.states) }

// Differences yields the entries that differ between what is desired and the kernel.
func (m Members) Differences() iter.Seq2[ipset.Entry, State] {
	return func(yield func(ipset.Entry, State) bool) {
		for e := range m.dirty {
			if !yield(e, m.states[e]) {
				return
			}
		}
	}
}

// FromNothing yields the entries that are desired, as if the kernel had none.
func (m Members) FromNothing() iter.Seq2[ipset.Entry, State] {
	return func(yield func(ipset.Entry, State) bool) {
		for e, st := range m.states {
			if st.Wanted && !yield(e, State{Want: st.Want, Wanted: true}) {
				return
			}
		}
	}
}

// Lacking returns the entries that are desired and that the kernel has otherwise or not at all.
func (m Members) Lacking() (out []ipset.Entry) {
	for e, st := range m.Differences() {
		if st.Wanted {
			out = append(out, e)
		}
	}
	return out
}

// Clean reports whether no entry differs.
func (m Members) Clean() bool { return len(m.dirty) == 0 }

// Empty reports whether nothing is desired, and nothing in the kernel.
func (m Members) Empty() bool { return len(m.states) == 0 }

// Len returns the number of entries that are desired or in the kernel.
func (m Members) Len() int { return len(m.states) }

// Count returns the number of entries that the kernel has.
func (m Members) Count() int {
	n := len(m.states)
	for e := range m.dirty {
		if !m.states[e].Exists {
			n--
		}
	}
	return n
}

// Want makes an entry desired. It reports, as all that change an entry do, whether the entry differs from the kernel's
// now.
func (m Members) Want(e ipset.Entry, a ipset.Attr) bool {
	st := m.states[e]
	if !st.Wanted {
		*m.total++
	}
	st.Want, st.Wanted = a, true
	return m.store(e, st)
}

// Unwant makes an entry no longer desired.
func (m Members) Unwant(e ipset.Entry) bool {
	st := m.states[e]
	if st.Wanted {
		*m.total--
	}
	st.Want, st.Wanted = ipset.Attr{}, false
	return m.store(e, st)
}

// Have records that the kernel has an entry.
func (m Members) Have(e ipset.Entry, a ipset.Attr) bool {
	st := m.states[e]
	st.Have, st.Exists = a, true
	return m.store(e, st)
}

// Lack records that the kernel does not have an entry.
func (m Members) Lack(e ipset.Entry) bool {
	st := m.states[e]
	st.Have, st.Exists = ipset.Attr{}, false
	return m.store(e, st)
}

// LackAll records that the kernel has no entry. It reports whether some entry is desired that the kernel had.
func (m Members) LackAll() (differs bool) {
	for e, st := range m.states {
		if st.Exists {
			differs = m.Lack(e) || differs
		}
	}
	return differs
}

// store stores an entry's state and keeps dirty true to it.
func (m Members) store(e ipset.Entry, st State) (differs bool) {
	if !st.Wanted && !st.Exists {
		delete(m.states, e)
		delete(m.dirty, e)
		return false
	}
	m.states[e] = st
	if st.clean() {
		delete(m.dirty, e)
		return false
	}
	m.dirty[e] = struct{}{}
	return true
}

// Elements returns entries with what is desired of them, in the order of their text.
func (m Members) Elements(entries []ipset.Entry) []ipset.Element {
	out := make([]ipset.Element, 0, len(entries))
	for _, e := range entries {
		out = append(out, ipset.Element{Entry: e, Attr: m.states[e].Want})
	}
	slices.SortFunc(out, func(a, b ipset.Element) int { return compare(a.Entry, b.Entry) })
	return out
}

func compare(a, b ipset.Entry) int {
	return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()),
		cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Set, b.Set))
}
