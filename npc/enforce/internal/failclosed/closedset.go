package failclosed

import (
	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
)

// entries are entries of a family's set -> the comment. The zero entries are empty.
type entries map[ipset.Entry]string

// closedSet is a set of addresses that are dropped. Known pods of other nodes are in it as exceptions.
type closedSet struct {
	*dataplane.Set
	// closed is what the set holds besides the exceptions.
	closed entries
}

// fill makes the set hold exactly the given addresses with their comments, apart from exceptions.
func (s *closedSet) fill(want entries) {
	for e := range s.closed {
		// An entry may have become that of a remote pod meanwhile.
		if _, ok := want[e]; !ok && !s.State(e).Want.NoMatch {
			s.Remove(e)
		}
	}
	for e, why := range want {
		// A remote pod may have had the address since, and have taken the entry with it.
		if st := s.State(e); s.closed[e] != why || !st.Wanted || st.Want.NoMatch {
			s.Add(e, ipset.Attr{Comment: iptables.Comment(why)})
		}
	}
	s.closed = want
}
