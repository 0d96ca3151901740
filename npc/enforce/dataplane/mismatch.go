package dataplane

import (
	"fmt"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// mismatch returns in words why the set that the kernel has by the name cannot be the desired one; empty if it can, or
// if there is none.
func (s *Set) mismatch() string {
	if !s.exists || !s.wanted {
		return ""
	}
	if s.foreignLayout != "" {
		return "is of layout " + s.foreignLayout
	}
	return s.found.Mismatch(s.Set)
}

// replaceable reports whether a mismatched set can be destroyed before the desired one is made.
func (s *Set) replaceable() bool { return s.found.References == 0 && s.foreignLayout == "" }

// describeMismatch returns a mismatch for the log.
func (s *Set) describeMismatch(why string) string {
	return fmt.Sprintf("set %s (%s) %s", s.Name, s.about, why)
}

// renamer gives sets other names in the kernel. The rules find them by these.
type renamer struct {
	sets   *Sets
	chains *Chains
}

// resolve renames the sets whose own names are taken by sets that cannot be the desired ones, and that are in use:
// these can neither be destroyed nor always be swapped for others. With back, sets get their own names back that are
// free again. It returns what was in the way, in words.
func (n renamer) resolve(back bool) (inTheWay []string) {
	sets, f := n.sets.byName, n.sets.family
	if back {
		for key, name := range f.aliases {
			if sets[key] == nil {
				n.rename(sets[name], key)
			}
		}
	}
	for _, s := range n.sets.toPlan() {
		why := s.mismatch()
		if why == "" || s.replaceable() {
			continue
		}
		inTheWay = append(inTheWay, s.describeMismatch(why))
		name := s.Name
		for sets[name] != nil {
			name = naming.Set(f.ip, "instead of", name)
		}
		n.rename(s, name)
	}
	return inTheWay
}

// rename gives a set another name in the kernel, where it is made again. The set of the former name is not wanted any
// more.
func (n renamer) rename(s *Set, name string) {
	sets, aliases := n.sets.byName, n.sets.family.aliases
	former := s.Name
	left := newSet(n.sets, s.found.Set, former)
	left.Name, left.exists, left.found = former, s.exists, s.found
	delete(sets, former)
	if s.exists {
		sets[former] = left
		left.touch()
	}
	s.Name, s.exists, s.foreignLayout = name, false, ""
	s.unload()
	sets[name] = s
	delete(aliases, s.key)
	if name != s.key {
		aliases[s.key] = name
	}
	s.touch()
	n.chains.touchAll()
	for _, l := range sets {
		if st := l.State(ipset.Member(former)); st.Wanted && l.wanted {
			l.Remove(ipset.Member(former))
			l.Add(ipset.Member(name), st.Want)
		}
	}
}
