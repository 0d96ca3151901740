package failclosed

import (
	"iter"
	"net/netip"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// entries are entries of a family's set -> the comment. The zero entries are empty.
type entries map[ipset.Entry]string

// halves yields prefixes as sets of type hash:net take them, with their families.
func halves(prefixes ...netip.Prefix) iter.Seq2[npc.Family, ipset.Entry] {
	return func(yield func(npc.Family, ipset.Entry) bool) {
		for _, p := range prefixes {
			for _, half := range ipblock.Halves(p) {
				if !yield(npc.FamilyOf(p.Addr()), ipset.Net(half)) {
					return
				}
			}
		}
	}
}

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
