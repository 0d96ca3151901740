package dataplane

import (
	"fmt"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/naming"
)

// mismatch returns in words why the set that the kernel has by the name cannot be the desired one; empty if it can, or if there is none.
func (s *Set) mismatch() string {
	if !s.exists || !s.wanted {
		return ""
	}
	if s.foreignLayout != "" {
		return "is of layout " + s.foreignLayout
	}
	return mismatch(s.Set, s.found)
}

func mismatch(want ipset.Set, found ipset.Header) string {
	switch {
	case found.Type != want.Type:
		return fmt.Sprintf("is a %s, not a %s", found.Type, want.Type)
	case want.Type != ipset.ListSet && found.Family != want.Family:
		return fmt.Sprintf("is of family %s, not %s", found.Family, want.Family)
	case want.Type != ipset.ListSet && found.Size != want.Size:
		return fmt.Sprintf("takes %d members at most", found.Size)
	case found.Other != "":
		return "has other options than ours: " + found.Other
	}
	return ""
}

// sameKind reports whether what one set holds could be what the other does.
func sameKind(a, b ipset.Set) bool {
	return a.Type == b.Type && (a.Type == ipset.ListSet || a.Family == b.Family)
}

// replaceable reports whether a mismatched set can be destroyed before the desired one is made.
func (s *Set) replaceable() bool { return s.found.References == 0 && s.foreignLayout == "" }

// describeMismatch returns a mismatch for the log.
func (s *Set) describeMismatch(why string) string {
	return fmt.Sprintf("set %s (%s) %s", s.Name, s.about, why)
}

// ResolveNames gives sets other names in the kernel whose own name is taken by a set that cannot be the desired one, and that is in use: it can
// neither be destroyed nor always be swapped for another. The rules find the desired one by that name until the wrong one is gone; with back, sets get
// their own names back that are free again. It is to be called before Plan, and returns what was in the way, in words.
func (t *Table) ResolveNames(back bool) (inTheWay []string) {
	if back {
		for key, name := range t.aliases {
			if t.sets[key] == nil {
				t.rename(t.sets[name], key)
			}
		}
	}
	for _, s := range t.orderedDirty() {
		why := s.mismatch()
		if why == "" || s.replaceable() {
			continue
		}
		inTheWay = append(inTheWay, s.describeMismatch(why))
		name := s.Name
		for t.sets[name] != nil {
			name = naming.Set(t.Family, "instead of", name)
		}
		t.rename(s, name)
	}
	return inTheWay
}

// rename gives a set another name in the kernel, where it is made anew. What has the former name is not wanted any more.
func (t *Table) rename(s *Set, name string) {
	former := s.Name
	left := newSet(t, s.found.Set, former)
	left.Name, left.exists, left.found = former, s.exists, s.found
	delete(t.sets, former)
	if s.exists {
		t.sets[former] = left
		t.touch(left)
	}
	s.Name, s.exists, s.foreignLayout = name, false, ""
	s.unload()
	t.sets[name] = s
	delete(t.aliases, s.key)
	if name != s.key {
		t.aliases[s.key] = name
	}
	t.touch(s)
	for _, c := range t.chains {
		c.touch()
	}
	for _, l := range t.sets {
		if st, ok := l.entries[ipset.Member(former)]; ok && st.Wanted && l.wanted {
			l.Remove(ipset.Member(former))
			l.Add(ipset.Member(name), st.Want)
		}
	}
}

// resolve returns a rule's match with the names that sets have in the kernel.
func (t *Table) resolve(match string) string {
	for key, name := range t.aliases {
		match = strings.ReplaceAll(match, naming.Match(key, ""), naming.Match(name, ""))
	}
	return match
}
