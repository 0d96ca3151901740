package npc

import (
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/naming"
)

// table is all that one family has in the kernel, as the model wants it and as it is known to be.
type table struct {
	family Family
	// other is the other family's table.
	other *table
	// active says that a local pod has, or had, an address of the family. Until then only what
	// every node has is programmed.
	active bool
	// adopted says that what the kernel has was read, recalled that what it tells of vanished pods was taken note of.
	adopted, recalled bool
	// local is the set of the local pods.
	local *set
	// sets by name, those that only the kernel still has among them.
	sets      map[string]*set
	dirtySets map[*set]struct{}
	// moved are the sets that have another name than their own -> that name.
	moved map[string]string
	// foundLayout is the layout of what was last adopted; empty if there was nothing.
	foundLayout string
	// unfinished says that the last plan left rules that must go at once when it was carried out.
	unfinished bool
	// refusing says that the kernel did not take some rules or sets.
	refusing bool
	// refused holds those sets by the names that rules have for them -> why.
	refused map[string]string
	// chains by name, those that only the kernel still has among them.
	chains      map[string]*chain
	dirtyChains map[*chain]struct{}
	// postponed are the namespaces whose rules are left as they are.
	postponed map[string]bool
	// jump is our rule in FORWARD; nil if the CNI jumps to us.
	jump *iptables.Rule
	// jumpStale are the rules in FORWARD that are ours and must go before the jump is put first;
	// jumpMissing says that it has to be put there.
	jumpStale   []string
	jumpMissing bool
	// flows are the addresses that changed hands and have connections of former pods. Until these are deleted, nothing is opened to
	// their next pods: a local one is closed, and a remote one is no peer.
	flows conntrack.Ledger
	// unpoliced says that there is no policy: nothing has to wait.
	unpoliced bool
	// textless says that the texts of rules that are found are of no use any more.
	textless bool
	// hold is what stays because input is missing; nil if nothing is.
	hold *hold
}

func newTable(f Family) *table {
	return &table{
		family:      f,
		sets:        map[string]*set{},
		moved:       map[string]string{},
		dirtySets:   map[*set]struct{}{},
		chains:      map[string]*chain{},
		dirtyChains: map[*chain]struct{}{},
		postponed:   map[string]bool{},
		refused:     map[string]string{},
	}
}

// touch has a set looked at by the next plan, unless the family is not active and every node has it so.
func (t *table) touch(s *set) {
	if t.active || s.fixed || !s.wanted {
		t.dirtySets[s] = struct{}{}
	}
}

// activate has everything programmed from now on.
func (t *table) activate() {
	if t.active {
		return
	}
	t.active = true
	for _, s := range t.sets {
		t.touch(s)
	}
	for _, c := range t.chains {
		c.touch()
	}
}

// set wants a set and returns it. A set that the kernel still has by that name is taken up again.
func (t *table) set(name string, typ ipset.Type, about string) *set {
	inKernel := name
	if moved, ok := t.moved[name]; ok {
		inKernel = moved
	}
	s := t.sets[inKernel]
	if s == nil {
		s = t.takeList(name)
	}
	if s == nil {
		s = &set{table: t, entries: map[ipset.Entry]entryState{}, dirty: map[ipset.Entry]struct{}{}}
		t.sets[inKernel] = s
	}
	s.Set, s.key = ipset.Set{Name: inKernel, Type: typ, Family: t.family.IPSet()}, name
	s.about, s.wanted = about, true
	if t.hold != nil {
		delete(t.hold.sets, s)
	}
	if s.exists && !sameKind(s.Set, s.found.Set) {
		s.forget()
	}
	t.touch(s)
	return s
}

// takeList takes a list of sets that was found in the kernel: such a set has no family, and went to the other table.
func (t *table) takeList(name string) *set {
	s := t.other.sets[name]
	if s == nil {
		return nil
	}
	delete(t.other.sets, name)
	delete(t.other.dirtySets, s)
	s.table, t.sets[name] = t, s
	return s
}

// fixedSet wants one of the sets that every node has.
func (t *table) fixedSet(name string, typ ipset.Type, about string) *set {
	s := t.set(naming.FixedSet(t.family, name), typ, about)
	s.fixed = true
	t.touch(s)
	return s
}

// dropSet wants a set no more, and with it none of its entries.
func (t *table) dropSet(s *set) {
	s.wanted = false
	t.hold.keepNeeded(s)
	for e := range s.entries {
		s.remove(e)
	}
	if !s.exists {
		t.remove(s)
		return
	}
	t.touch(s)
}

// remove forgets a set that neither the model wants nor the kernel has.
func (t *table) remove(s *set) {
	delete(t.sets, s.Name)
	delete(t.dirtySets, s)
	if t.moved[s.key] == s.Name {
		delete(t.moved, s.key)
	}
}

// chain wants a chain and returns it.
func (t *table) chain(name string) *chain {
	c := t.chains[name]
	if c == nil {
		c = &chain{name: name, table: t, rules: map[string]*rule{}}
		t.chains[name] = c
	}
	c.wanted = true
	if t.hold != nil {
		delete(t.hold.chains, c)
	}
	c.touch()
	return c
}

// dropChain wants a chain no more.
func (t *table) dropChain(c *chain) {
	c.wanted = false
	if !c.exists {
		delete(t.chains, c.name)
		delete(t.dirtyChains, c)
		return
	}
	c.touch()
}

// unplanned says whether a plan may do something. What is left for later and what is left out counts.
func (t *table) unplanned() bool {
	return len(t.dirtySets)+len(t.dirtyChains) > 0 || t.flows.Untaken() || t.jumpMissing || t.refusing
}

// adoptSets takes the sets that were read from the kernel for those that there are.
func (t *table) adoptSets(listings []ipset.Listing) {
	t.adopted = true
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
		s.adopt(there[name])
		if !s.wanted && !s.exists {
			t.remove(s)
		}
	}
	for name, l := range there {
		if t.sets[name] == nil {
			s := &set{Set: l.Set, key: name, table: t, exists: true,
				entries: map[ipset.Entry]entryState{}, dirty: map[ipset.Entry]struct{}{}}
			t.sets[name] = s
			s.adopt(l)
		}
	}
}

// owns says whether a set in the kernel is this family's to keep or to remove; families are those of the sets that are no lists. A
// list has none but its members': the rules of one family must not lose it for what the other one does. One without members that
// neither wants is removed with the first.
func (t *table) owns(l *ipset.Listing, families map[string]ipset.Family) bool {
	if t.sets[l.Name] != nil {
		return true
	}
	if t.other.sets[l.Name] != nil || !naming.IsOurSet(l.Name) && !naming.IsAncestorSet(l.Name) {
		return false
	}
	if l.Type != ipset.ListSet {
		return l.Family == t.family.IPSet()
	}
	for _, m := range l.Members {
		if f, ok := families[m.Set]; ok {
			return f == t.family.IPSet()
		}
	}
	return t.family == IPv4
}

// adoptChains takes the chains that were read from the kernel for those that there are.
func (t *table) adoptChains(seen iptables.Seen) {
	t.foundLayout = layoutOf(seen)
	strange := t.foundLayout != "" && t.foundLayout != naming.Layout
	for _, s := range t.sets {
		// Sets with hashed names of another layout have other names than ours.
		if strange && s.fixed && s.Name == s.key {
			s.strange = t.foundLayout
			t.touch(s)
		}
	}
	for name, c := range t.chains {
		sc, ok := seen.Chains[name]
		if strange || c.exists && ok && c.changed(sc) && slices.Equal(sc.IDs, c.have) {
			sc.IDs = nil // as if it were empty, so that it is written anew
		}
		c.exists, c.have, c.printed, c.adopted, c.found = ok, sc.IDs, nil, true, sc.Text
		c.touch()
		if !c.wanted && !ok {
			delete(t.chains, name)
			delete(t.dirtyChains, c)
		}
	}
	for name, sc := range seen.Chains {
		if t.chains[name] == nil {
			c := &chain{name: name, table: t, exists: true, adopted: true, have: sc.IDs, found: sc.Text, rules: map[string]*rule{}}
			t.chains[name] = c
			c.touch()
		}
	}
	t.adoptJump(seen)
	if t.textless {
		for _, c := range t.chains {
			c.found = nil
		}
	}
}

// layoutOf is the layout of the chains that were read: of several, one that is not ours. It is empty if there are none.
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

// adoptJump finds out whether our jump in FORWARD is there once, with nothing above it that accepts.
func (t *table) adoptJump(seen iptables.Seen) {
	t.jumpStale, t.jumpMissing = nil, false
	if t.jump == nil {
		return
	}
	jumps, before := t.hooked(seen)
	t.jumpStale, t.jumpMissing = jumps, len(jumps) != 1 || len(before) > 0
}

// hooked are the jumps to us that FORWARD has, and the rules before the first of them that can accept a packet.
func (t *table) hooked(seen iptables.Seen) (jumps, before []string) {
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
