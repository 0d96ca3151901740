package npc

import (
	"fmt"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/naming"
)

// misfit says in words why the set that the kernel has by our name cannot be ours; empty if it can, or if there is none.
func (s *set) misfit() string {
	if !s.exists || !s.wanted {
		return ""
	}
	if s.strange != "" {
		return "is of layout " + s.strange
	}
	return misfit(s.Set, s.found)
}

func misfit(want ipset.Set, found ipset.Header) string {
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

// sameKind says whether what one set holds could be what the other does.
func sameKind(a, b ipset.Set) bool {
	return a.Type == b.Type && (a.Type == ipset.ListSet || a.Family == b.Family)
}

// replaceMisfits has sets made anew that the kernel has by our names and that cannot be ours. One that is in use cannot
// be destroyed, nor always be swapped for another: ours takes another name, by which the rules find it, until the wrong
// one is gone. It returns what was found, in words.
func (t *table) replaceMisfits(tx *Transaction) {
	for _, s := range t.orderedDirty() {
		why := s.misfit()
		if why == "" {
			continue
		}
		tx.Replaced = append(tx.Replaced, fmt.Sprintf("set %s (%s) %s", s.Name, s.about, why))
		if s.found.References == 0 && s.strange == "" {
			tx.Revoke = append(tx.Revoke, ipset.Op{Kind: ipset.Destroy, Set: s.found.Set})
			s.exists, s.strange = false, ""
			s.forget()
			continue
		}
		name := s.Name
		for t.sets[name] != nil {
			name = naming.Set(t.family, "instead of", name)
		}
		t.rename(s, name)
	}
}

// rename gives a set another name in the kernel, where it is made anew. What has the former name is not wanted any more.
func (t *table) rename(s *set, name string) {
	former := s.Name
	left := &set{Set: s.found.Set, key: former, table: t, exists: s.exists, found: s.found,
		entries: map[ipset.Entry]entryState{}, dirty: map[ipset.Entry]struct{}{}}
	left.Name = former
	delete(t.sets, former)
	if s.exists {
		t.sets[former] = left
		t.touch(left)
	}
	s.Name, s.exists, s.strange = name, false, ""
	s.forget()
	t.sets[name] = s
	delete(t.moved, s.key)
	if name != s.key {
		t.moved[s.key] = name
	}
	t.touch(s)
	for _, c := range t.chains {
		c.touch()
	}
	for _, l := range t.sets {
		if st, ok := l.entries[ipset.Member(former)]; ok && st.wanted && l.wanted {
			l.remove(ipset.Member(former))
			l.add(ipset.Member(name), st.want)
		}
	}
}

// moveBack gives sets their own names back that are free again.
func (t *table) moveBack() {
	for key, name := range t.moved {
		if t.sets[key] == nil {
			t.rename(t.sets[name], key)
		}
	}
}

// redirect is a rule's match with the names that sets have in the kernel.
func (t *table) redirect(match string) string {
	for key, name := range t.moved {
		match = strings.ReplaceAll(match, naming.Match(key, ""), naming.Match(name, ""))
	}
	return match
}
