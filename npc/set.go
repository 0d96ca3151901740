package npc

import (
	"sort"

	"github.com/weave-npc/weave-npc/ipset"
)

// set is an ipset as the model wants it beside what is known of the kernel's. The difference is
// kept as it arises, so that a plan looks at nothing that did not change.
type set struct {
	ipset.Set // by the name that it has in the kernel
	table     *table
	// key is the name that rules are made with. It is the kernel's too, unless somebody else's set is in the way.
	key string
	// found is the set by that name that the kernel has, if it has one.
	found ipset.Header
	// about says for humans what the set holds.
	about string
	// fixed says that every node has the set.
	fixed bool
	// wanted and exists: the model wants it, the kernel has it.
	wanted, exists bool
	// leads is where a packet of a member is sent; nil if nowhere.
	leads *lead
	// strange is the layout, not ours, that the set has by what the kernel's chains say; empty if it is ours.
	strange string
	// refused says why the kernel did not take the set.
	refused string
	// condemned says that the set is not wanted and that one plan to tidy up has passed since.
	condemned bool
	entries   map[ipset.Entry]entryState
	// dirty are the entries that differ between the model and the kernel.
	dirty map[ipset.Entry]struct{}
}

// lead says where a set's members are sent: to the rules of a part, or to a branch on the way there.
type lead struct {
	to        *chain
	direction Direction
	// length is how far it is to the rules: 0 for those of a part, and for a branch more than for those that follow it.
	length int
}

// length is how far the set is from the rules; less than 0 if it leads nowhere.
func (s *set) length() int {
	if s.leads == nil {
		return -1
	}
	return s.leads.length
}

// entryState is one entry of a set, wanted or in the kernel.
type entryState struct {
	want, have     ipset.Attr
	wanted, exists bool
}

func (e entryState) clean() bool {
	return e.wanted == e.exists && (!e.wanted || e.want == e.have)
}

// add wants an entry. Wanting it again with another comment changes the comment.
func (s *set) add(e ipset.Entry, a ipset.Attr) {
	st := s.entries[e]
	st.want, st.wanted = a, true
	s.note(e, st)
}

// remove wants an entry no more.
func (s *set) remove(e ipset.Entry) {
	st, ok := s.entries[e]
	if !ok {
		return
	}
	st.want, st.wanted = ipset.Attr{}, false
	s.note(e, st)
}

// become wants these entries and no others.
func (s *set) become(want map[ipset.Entry]ipset.Attr) {
	for e := range s.entries {
		if _, ok := want[e]; !ok {
			s.remove(e)
		}
	}
	for e, a := range want {
		s.add(e, a)
	}
}

// note stores an entry's state and keeps dirty true to it.
func (s *set) note(e ipset.Entry, st entryState) {
	if !st.wanted && !st.exists {
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

// applied takes an entry as the kernel will have it once the plan is carried out.
func (s *set) applied(e ipset.Entry) {
	st := s.entries[e]
	st.have, st.exists = st.want, st.wanted
	s.note(e, st)
}

// adopt takes what the kernel holds of this set; nil says that there is none.
func (s *set) adopt(l *ipset.Listing) {
	s.exists = l != nil
	s.forget()
	if l != nil {
		s.found = l.Header
	}
	if l != nil && (!s.wanted || sameKind(s.Set, l.Set)) {
		for _, m := range l.Members {
			st := s.entries[m.Entry]
			st.have, st.exists = m.Attr, true
			s.note(m.Entry, st)
		}
	}
	s.table.touch(s)
}

// forget takes it that the kernel's set has no entries of ours.
func (s *set) forget() {
	for e, st := range s.entries {
		if st.exists {
			st.have, st.exists = ipset.Attr{}, false
			s.note(e, st)
		}
	}
}

// elements are those of the given entries as the model wants them, in the order of their text.
func (s *set) elements(entries []ipset.Entry) []ipset.Element {
	out := make([]ipset.Element, 0, len(entries))
	for _, e := range entries {
		out = append(out, ipset.Element{Entry: e, Attr: s.entries[e].want})
	}
	sort.Slice(out, func(i, j int) bool { return entryLess(out[i].Entry, out[j].Entry) })
	return out
}

func entryLess(a, b ipset.Entry) bool {
	if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 {
		return c < 0
	}
	if a.Prefix.Bits() != b.Prefix.Bits() {
		return a.Prefix.Bits() < b.Prefix.Bits()
	}
	if a.Proto != b.Proto {
		return a.Proto < b.Proto
	}
	if a.Port != b.Port {
		return a.Port < b.Port
	}
	return a.Set < b.Set
}
