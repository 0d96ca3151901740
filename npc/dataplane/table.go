package dataplane

import (
	"iter"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// Table is all that one family has in the kernel, as it is desired and as it is known to be.
type Table struct {
	Family traffic.Family
	// Local is the set of the local pods.
	Local *Set
	// Flows are the addresses that changed hands and have connections of former pods. Until these are deleted, nothing is opened to
	// their next pods: a local one is closed, and a remote one is no peer.
	Flows conntrack.Ledger
	// other is the other family's table.
	other *Table
	// active is set once a local pod has had an address of the family. Until then only what every node has is programmed.
	active bool
	// sets by name, those that only the kernel still has among them.
	sets map[string]*Set
	// chains by name, those that only the kernel still has among them.
	chains map[string]*Chain
	// dirtySets and dirtyChains are what the next plan looks at; changes counts the calls that marked one of them.
	dirtySets   map[*Set]struct{}
	dirtyChains map[*Chain]struct{}
	changes     uint64
	// aliases are the sets that have another name in the kernel than their own -> that name.
	aliases map[string]string
	// loaded is set once the kernel's sets have been read.
	loaded bool
	// foundLayout is the layout of what was last loaded; empty if there was nothing.
	foundLayout string
	// unfinished is set if the last transaction left rules that must go at once now that it was carried out.
	unfinished bool
	rejections rejections
	// postponed are the namespaces whose rules are left as they are.
	postponed map[string]bool
	// jump is the rule in FORWARD that leads here; nil if the CNI has one.
	jump *iptables.Rule
	// staleJumps are the jumps in FORWARD that must go before the jump is put first; jumpMissing is set if it has to be put there.
	staleJumps  []string
	jumpMissing bool
	// textless is set once the texts of rules that are found are of no use.
	textless bool
	// hold is what stays because input is missing; nil if nothing is.
	hold *hold
}

// NewTables returns the tables of both families.
func NewTables() [len(traffic.Families)]*Table {
	var ts [len(traffic.Families)]*Table
	for _, f := range traffic.Families {
		ts[f] = &Table{
			Family:      f,
			sets:        map[string]*Set{},
			aliases:     map[string]string{},
			dirtySets:   map[*Set]struct{}{},
			chains:      map[string]*Chain{},
			dirtyChains: map[*Chain]struct{}{},
			postponed:   map[string]bool{},
			rejections:  rejections{sets: map[string]string{}},
		}
	}
	ts[traffic.IPv4].other, ts[traffic.IPv6].other = ts[traffic.IPv6], ts[traffic.IPv4]
	for _, t := range ts {
		t.Local = t.AddFixedSet(naming.LocalPods, ipset.HashIP, "local pods")
	}
	return ts
}

// touch marks a set for the next plan, unless the family is not active and not every node has the set.
func (t *Table) touch(s *Set) {
	if t.active || s.fixed || !s.wanted {
		t.mark(s)
	}
}

// mark marks a set for the next plan.
func (t *Table) mark(s *Set) {
	t.changes++
	s.touched = t.changes
	t.dirtySets[s] = struct{}{}
}

// Activate has everything programmed from now on.
func (t *Table) Activate() {
	if t.active {
		return
	}
	t.active = true
	t.touchAll()
}

func (t *Table) touchAll() {
	for _, s := range t.sets {
		t.touch(s)
	}
	for _, c := range t.chains {
		c.touch()
	}
}

// Active reports whether a local pod has had an address of the family.
func (t *Table) Active() bool { return t.active }

// Loaded reports whether the kernel's sets have been read.
func (t *Table) Loaded() bool { return t.loaded }

// AddSet makes a set desired and returns it. A set that the kernel still has by that name is taken up again.
func (t *Table) AddSet(name string, typ ipset.Type, about string) *Set {
	inKernel := name
	if alias, ok := t.aliases[name]; ok {
		inKernel = alias
	}
	s := t.sets[inKernel]
	if s == nil {
		s = t.takeList(name)
	}
	if s == nil {
		s = newSet(t, ipset.Set{}, name)
		t.sets[inKernel] = s
	}
	s.Set, s.key = ipset.Set{Name: inKernel, Type: typ, Family: t.Family.IPSet()}, name
	s.about, s.wanted, s.destroyNext = about, true, false
	if t.hold != nil {
		delete(t.hold.sets, s)
	}
	if s.exists && !sameKind(s.Set, s.found.Set) {
		s.unload()
	}
	t.touch(s)
	return s
}

// AddFixedSet makes one of the sets desired that every node has.
func (t *Table) AddFixedSet(name string, typ ipset.Type, about string) *Set {
	s := t.AddSet(naming.FixedSet(t.Family, name), typ, about)
	s.fixed = true
	t.touch(s)
	return s
}

// takeList takes a list of sets that was found in the kernel: such a set has no family, and went to the other table.
func (t *Table) takeList(name string) *Set {
	s := t.other.sets[name]
	if s == nil {
		return nil
	}
	delete(t.other.sets, name)
	delete(t.other.dirtySets, s)
	s.table, t.sets[name] = t, s
	return s
}

// remove forgets a set that is neither wanted nor in the kernel.
func (t *Table) remove(s *Set) {
	delete(t.sets, s.Name)
	delete(t.dirtySets, s)
	if t.aliases[s.key] == s.Name {
		delete(t.aliases, s.key)
	}
}

// chain makes a chain desired and returns it.
func (t *Table) chain(name string) *Chain {
	c := t.chains[name]
	if c == nil {
		c = &Chain{name: name, table: t, rules: map[string]*rule{}}
		t.chains[name] = c
	}
	c.wanted = true
	if t.hold != nil {
		delete(t.hold.chains, c)
	}
	c.touch()
	return c
}

func (t *Table) removeChain(c *Chain) {
	delete(t.chains, c.name)
	delete(t.dirtyChains, c)
}

// Sets yields the sets that are desired.
func (t *Table) Sets() iter.Seq[*Set] {
	return func(yield func(*Set) bool) {
		for _, s := range t.sets {
			if s.wanted && !yield(s) {
				return
			}
		}
	}
}

// PodSets yields the sets of pods that not every node has, those that only the kernel still has among them.
func (t *Table) PodSets() iter.Seq[*Set] {
	return func(yield func(*Set) bool) {
		for _, s := range t.sets {
			if !s.fixed && (s.Type == ipset.HashIP || s.Type == ipset.HashIPPort) && !yield(s) {
				return
			}
		}
	}
}

// AboutChain returns what a chain is for, for humans; empty if it is not desired.
func (t *Table) AboutChain(name string) string {
	if c := t.chains[name]; c != nil && c.wanted {
		return c.about
	}
	return ""
}

// Postpone leaves the rules of a namespace as they are in the kernel, and its pods where they are, or no more.
func (t *Table) Postpone(namespace string, postpone bool) {
	if postpone {
		t.postponed[namespace] = true
	} else {
		delete(t.postponed, namespace)
	}
}

// postpones reports whether a chain's rules are left as they are for now.
func (t *Table) postpones(c *Chain) bool { return t.postponed[c.namespace] }

// Stale reports whether a plan may find something to do. What is left for later and what is left out counts.
func (t *Table) Stale() bool {
	return len(t.dirtySets)+len(t.dirtyChains) > 0 || t.Flows.Untaken() || t.jumpMissing || t.rejections.any
}

// Unfinished reports whether the last transaction left rules that the next one removes.
func (t *Table) Unfinished() bool { return t.unfinished }

// Garbage reports whether a plan left something for later.
func (t *Table) Garbage() bool {
	for s := range t.dirtySets {
		if !s.wanted {
			return true
		}
	}
	return len(t.aliases) > 0 || len(t.dirtyChains) > 0
}

// Size counts what the kernel has.
func (t *Table) Size() (sets, entries, chains, rules int) {
	for _, s := range t.sets {
		if s.exists {
			sets++
			entries += s.count()
		}
	}
	for _, c := range t.chains {
		if c.exists {
			chains++
			rules += len(c.have)
		}
	}
	return sets, entries, chains, rules
}

// Dropped returns how many packets the chain that drops them in a direction had met when it was read last.
func (t *Table) Dropped(d traffic.Direction) uint64 { return t.chains[naming.DropChain(d)].met }

// Leftovers returns the sets and chains that are neither desired nor in the kernel. There are none unless something was forgotten.
func (t *Table) Leftovers() (out []string) {
	for name, s := range t.sets {
		if !s.wanted && !s.exists || name != s.Name {
			out = append(out, "set "+name)
		}
	}
	for name, c := range t.chains {
		if !c.wanted && !c.exists {
			out = append(out, "chain "+name)
		}
	}
	return out
}
