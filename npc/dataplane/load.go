package dataplane

import (
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// LoadSets takes over the sets that were read from the kernel.
func (t *Table) LoadSets(listings []ipset.Listing) {
	t.loaded = true
	there, families := map[string]*ipset.Listing{}, map[string]ipset.Family{}
	for _, l := range listings {
		if l.Type != ipset.ListSet {
			families[l.Name] = l.Family
		}
	}
	for i := range listings {
		if l := &listings[i]; t.owns(l, families) {
			there[l.Name] = l
		}
	}
	for name, s := range t.sets {
		s.load(there[name])
		if !s.wanted && !s.exists {
			t.remove(s)
		}
	}
	for name, l := range there {
		if t.sets[name] == nil {
			s := newSet(t, l.Set, name)
			s.exists = true
			t.sets[name] = s
			s.load(l)
		}
	}
}

// owns reports whether a set in the kernel is this family's to keep or to remove; families are those of the sets that are no lists. A
// list has none but its members': the rules of one family must not lose it for what the other one does. One without members that
// neither wants is removed with the first.
func (t *Table) owns(l *ipset.Listing, families map[string]ipset.Family) bool {
	if t.sets[l.Name] != nil {
		return true
	}
	if t.other.sets[l.Name] != nil || !naming.IsOurSet(l.Name) && !naming.IsAncestorSet(l.Name) {
		return false
	}
	if l.Type != ipset.ListSet {
		return l.Family == t.Family.IPSet()
	}
	for _, m := range l.Members {
		if f, ok := families[m.Set]; ok {
			return f == t.Family.IPSet()
		}
	}
	return t.Family == traffic.IPv4
}

// LoadChains takes over the chains that were read from the kernel.
func (t *Table) LoadChains(seen iptables.Seen) {
	t.foundLayout = layoutOf(seen)
	foreign := t.ForeignLayout()
	for _, s := range t.sets {
		// Sets with hashed names of another layout have other names.
		if foreign != "" && s.fixed && s.Name == s.key {
			s.foreignLayout = foreign
			t.touch(s)
		}
	}
	for name, c := range t.chains {
		sc, ok := seen.Chains[name]
		if foreign != "" || c.exists && ok && c.changed(sc) && slices.Equal(sc.IDs, c.have) {
			sc.IDs = nil // as if it were empty, so that it is rewritten
		}
		c.exists, c.have, c.printed, c.loaded, c.found = ok, sc.IDs, nil, true, sc.Text
		c.touch()
		if !c.wanted && !ok {
			t.removeChain(c)
		}
	}
	for name, sc := range seen.Chains {
		if t.chains[name] == nil {
			c := &Chain{name: name, table: t, exists: true, loaded: true, have: sc.IDs, found: sc.Text, rules: map[string]*rule{}}
			t.chains[name] = c
			c.touch()
		}
	}
	t.loadJump(seen)
	if t.textless {
		t.dropTexts()
	}
}

// ForeignLayout returns the layout of the chains as they were last loaded, if it is another version's; else empty. Such are
// rewritten: what their sets mean is not known.
func (t *Table) ForeignLayout() string {
	if t.foundLayout != naming.Layout {
		return t.foundLayout
	}
	return ""
}

// DropTexts gives up the texts of rules that were found, which nobody will look at.
func (t *Table) DropTexts() {
	if !t.textless {
		t.textless = true
		t.dropTexts()
	}
}

func (t *Table) dropTexts() {
	for _, c := range t.chains {
		c.found = nil
	}
}

// layoutOf returns the layout of the chains that were read: of several, one that is another version's. It is empty if there are none.
func layoutOf(seen iptables.Seen) string {
	found := ""
	for name := range seen.Chains {
		version, marked := strings.CutPrefix(name, naming.LayoutPrefix)
		if marked && (version != naming.Layout || found == "") {
			found = version
		}
	}
	_, unmarked := seen.Chains[naming.MainChain]
	if found == "" && unmarked {
		found = naming.Layout
	}
	return found
}

// loadJump finds out whether the jump in FORWARD is there once, with nothing above it that accepts.
func (t *Table) loadJump(seen iptables.Seen) {
	t.staleJumps, t.jumpMissing = nil, false
	if t.jump == nil {
		return
	}
	jumps, before := t.hooked(seen)
	t.staleJumps, t.jumpMissing = jumps, len(jumps) != 1 || len(before) > 0
}

// hooked returns the jumps to weave-npc's chains that FORWARD has, and the rules before the first of them that can accept a packet.
func (t *Table) hooked(seen iptables.Seen) (jumps, before []string) {
	for _, r := range seen.Hooks[naming.HookChain] {
		switch {
		case iptables.RuleID(r) == t.jump.ID():
			jumps = append(jumps, r)
		case len(jumps) == 0 && seen.Accepts(r):
			before = append(before, r)
		}
	}
	return jumps, before
}
