package dataplane

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/found"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/members"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/order"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Set is a desired ipset, together with what is known of the kernel's.
type Set struct {
	ipset.Set // by the name that it has in the kernel
	sets      *Sets
	// key is the name that rules are rendered with. It is also the name in the kernel, unless a foreign set has that
	// name.
	key string
	// found is the set by that name that the kernel has, if it has one.
	found ipset.Header
	// about describes for humans what the set holds.
	about string
	// fixed is set if every node has the set.
	fixed bool
	// wanted is set while the set is desired, exists while the kernel has it.
	wanted, exists bool
	// target is where packets of members are sent; nil if nowhere.
	target *target
	// stage is where rules that were found dispatch members of the set, if the set is not wanted; nil if none do.
	stage *found.Dispatch
	// order is what the order of changes depends on, if known; asked is set once the kernel's rules may ask for members.
	order order.Set
	asked bool
	// foreignLayout is the layout of the chains that were found with the set, if it is another version's.
	foreignLayout string
	// rejected is why the kernel did not take the set.
	rejected string
	// destroyNext is set once a plan that collects garbage has passed since the set is not wanted; the next destroys it.
	destroyNext bool
	members     members.Members
	// kept are the members that stay because input is missing; stays is set if the set itself stays while it is not
	// wanted.
	kept  map[ipset.Entry]bool
	stays bool
	// initial returns the elements that the set is made with: some if all expire and another goroutine adds them.
	initial func() []ipset.Element
}

// target is where a set's members are sent: to the rules of a shard, or to a node of the dispatch tree.
type target struct {
	chain     *Chain
	direction npc.Direction
	// height is 0 for the rules of a shard, and for a node more than for the nodes below it.
	height int
}

// heightOf returns how far a set is from the rules that its members are sent to; less than 0 if they are sent nowhere.
// Of a set that was found it is known only whether it is farther than another one.
func heightOf(s *Set) int {
	switch {
	case s.target != nil:
		return s.target.height
	case s.stage != nil:
		return math.MaxInt - s.stage.Depth
	}
	return -1
}

func newSet(ss *Sets, s ipset.Set, key string) *Set {
	none := func() []ipset.Element { return nil }
	return &Set{Set: s, key: key, sets: ss, members: members.New(&ss.entries), initial: none}
}

// Key returns the name by which rules refer to the set.
func (s *Set) Key() string { return s.key }

// About returns what the set holds, for humans.
func (s *Set) About() string { return s.about }

// Family returns the family whose table the set belongs to.
func (s *Set) Family() npc.Family { return s.sets.family.ip }

// Rejected returns why the kernel did not take the set; empty if it did.
func (s *Set) Rejected() string { return s.rejected }

// State returns the state of an entry.
func (s *Set) State(e ipset.Entry) members.State { return s.members.State(e) }

// States yields every entry that is desired or in the kernel.
func (s *Set) States() iter.Seq2[ipset.Entry, members.State] { return s.members.States() }

// Differences yields the entries that differ between what is desired and the kernel.
func (s *Set) Differences() iter.Seq2[ipset.Entry, members.State] { return s.members.Differences() }

// Dispatch records that packets of members are sent to a chain, at a height above the rules that they are dispatched to
// (0 for those rules).
func (s *Set) Dispatch(to *Chain, d npc.Direction, height int) {
	s.target = &target{chain: to, direction: d, height: height}
	s.order.Evaluation, s.order.Direction = order.Tail, d
}

// SetRole replaces the set's role.
func (s *Set) SetRole(r order.Role) { s.order.Role = r }

// DispatchToTier records that packets of members are sent to a chain with policies of a tier, at a height above their
// rules (0 for those).
func (s *Set) DispatchToTier(t policy.Tier, to *Chain, d npc.Direction, height int) {
	s.Dispatch(to, d, height)
	s.order.Evaluation = order.ListOf(t)
}

// Allow records that packets of members are allowed in a direction.
func (s *Set) Allow(d npc.Direction) { s.order.Evaluation, s.order.Direction = order.Tail, d }

// Add makes an entry desired. Adding it again with another comment changes the comment.
func (s *Set) Add(e ipset.Entry, a ipset.Attr) {
	delete(s.kept, e) // some object accounts for it
	s.touchIf(s.members.Want(e, a))
}

// Remove makes an entry no longer desired.
func (s *Set) Remove(e ipset.Entry) { s.touchIf(s.members.Unwant(e)) }

// Replace makes these entries desired and no others.
func (s *Set) Replace(want map[ipset.Entry]ipset.Attr) {
	for e := range s.States() {
		if _, ok := want[e]; !ok {
			s.Remove(e)
		}
	}
	for e, a := range want {
		s.Add(e, a)
	}
}

// Drop makes the set no longer desired, and with it none of its entries.
func (s *Set) Drop() {
	s.wanted = false
	if s.sets.needed[s.Name] {
		s.keepMembers()
	}
	for e := range s.States() {
		s.Remove(e)
	}
	if !s.exists {
		s.sets.remove(s)
		return
	}
	s.touch()
}

// keepMembers keeps the members for rules or lists that stay, without those that are another pod's now.
func (s *Set) keepMembers() {
	s.kept = map[ipset.Entry]bool{}
	for e, st := range s.States() {
		if st.Exists && !s.sets.flows.Has(e.Prefix.Addr()) {
			s.kept[e] = true
		}
	}
}

// keeps reports whether the set stays although it is not wanted.
func (s *Set) keeps() bool { return s.stays || s.sets.needed[s.Name] || len(s.kept) > 0 }

// touch marks the set for the next plan. While the family is not active, sets are left alone that are desired and not
// every node has: one that was found could be a list whose members are not made.
func (s *Set) touch() {
	if s.sets.family.active || s.fixed || !s.wanted {
		s.mark()
		return
	}
	delete(s.sets.marked, s)
}

// touchIf marks it if a member differs that was changed.
func (s *Set) touchIf(differs bool) {
	if differs {
		s.touch()
	}
}

// mark marks the set for the next plan.
func (s *Set) mark() { s.sets.marked[s] = s.sets.family.change() }

// load takes over what the kernel holds of the set; nil means that there is none.
func (s *Set) load(l *ipset.Listing) {
	s.exists = l != nil
	s.unload()
	if l != nil {
		s.found = l.Header
	}
	if l != nil && (!s.wanted || sameKind(s.Set, l.Set) && s.Timeout == 0) {
		for _, m := range l.Members {
			m.Timeout = 0 // it runs, and what is left of it is no difference
			s.members.Have(m.Entry, m.Attr)
		}
	}
	s.touch()
}

// unload records that the kernel's set has none of the entries.
func (s *Set) unload() { s.touchIf(s.members.LackAll()) }

// sameKind reports whether what one set holds could be what the other does.
func sameKind(a, b ipset.Set) bool {
	return a.Type == b.Type && (a.Type == ipset.ListSet || a.Family == b.Family)
}

// Sets are one family's sets by their names in the kernel, those that only the kernel still has among them.
type Sets struct {
	family *family
	byName map[string]*Set
	// marked are the sets that the next plan looks at -> the count of changes when they were marked last.
	marked map[*Set]uint64
	// other are the other family's.
	other *Sets
	// local is the set of the local pods.
	local *Set
	// closed is the set of the local pods whose packets to this node are dropped; nil if policies evaluate none of them.
	closed *Set
	// flows are the addresses that changed hands and have connections of former pods.
	flows *conntrack.Pending
	// needed are the names of the sets that rules and lists refer to which stay because input is missing.
	needed  map[string]bool
	entries int // of all sets, desired
	// loaded is set once the kernel's sets have been read.
	loaded bool
}

func newSets(f *family) *Sets {
	return &Sets{family: f, byName: map[string]*Set{}, marked: map[*Set]uint64{}, flows: &conntrack.Pending{}}
}

// Add makes a set desired and returns it. A set that the kernel still has by that name is taken up again.
func (ss *Sets) Add(name string, typ ipset.Type, about string) *Set {
	inKernel := name
	if alias, ok := ss.family.aliases[name]; ok {
		inKernel = alias
	}
	s := ss.byName[inKernel]
	if s == nil {
		s = ss.takeList(name)
	}
	if s == nil {
		s = newSet(ss, ipset.Set{}, name)
		ss.byName[inKernel] = s
	}
	s.Set, s.key = ipset.Set{Name: inKernel, Type: typ, Family: naming.IPSet(ss.family.ip)}, name
	s.about, s.wanted, s.destroyNext, s.stays = about, true, false, false
	if s.exists && !sameKind(s.Set, s.found.Set) {
		s.unload()
	}
	s.touch()
	return s
}

// Fix makes a set one that chains ask for which every node has, and returns it.
func Fix(s *Set) *Set { s.fixed = true; s.touch(); return s }

// AddFixed makes one of the sets desired that every node has.
func (ss *Sets) AddFixed(name string, typ ipset.Type, about string) *Set {
	return Fix(ss.Add(naming.FixedSet(ss.family.ip, name), typ, about))
}

// AddExpiring makes a set desired whose members expire, and which others fill. It is made with what a function returns.
func (ss *Sets) AddExpiring(of ipset.Set, about string, initial func() []ipset.Element) *Set {
	s := ss.Add(of.Name, of.Type, about)
	s.Timeout, s.initial, s.members = of.Timeout, initial, members.New(&s.sets.entries) // what was found stays
	return s
}

// AddClosed makes the set desired of the local pods whose packets to this node are dropped. They also are while the
// rules that evaluate them change.
func (ss *Sets) AddClosed(about string) *Set {
	ss.closed = ss.AddFixed(naming.Closed, ipset.HashIP, about)
	ss.closed.order.Evaluation, ss.closed.order.Direction = order.ClosedToNode, npc.Egress
	ss.closed.order.Role.Action = policy.Deny
	return ss.closed
}

// takeList takes a list of sets that was found in the kernel: such a set has no family, and went to the other one.
func (ss *Sets) takeList(name string) *Set {
	s := ss.other.byName[name]
	if s == nil {
		return nil
	}
	delete(ss.other.byName, name)
	delete(ss.other.marked, s)
	s.sets, s.kept, s.stays, s.asked = ss, nil, false, s.exists && s.found.References > 0 // by this family's rules
	ss.byName[name] = s
	return s
}

// remove forgets a set that is neither wanted nor in the kernel.
func (ss *Sets) remove(s *Set) {
	delete(ss.byName, s.Name)
	delete(ss.marked, s)
	if ss.family.aliases[s.key] == s.Name {
		delete(ss.family.aliases, s.key)
	}
}

// touchAll marks the sets for the next plan.
func (ss *Sets) touchAll() {
	for _, s := range ss.byName {
		s.touch()
	}
}

// toPlan returns the sets that were marked: those that dispatch nowhere, those that dispatch to rules, those that
// dispatch to the latter, and so on.
func (ss *Sets) toPlan() []*Set {
	out := slices.AppendSeq(make([]*Set, 0, len(ss.marked)), maps.Keys(ss.marked))
	slices.SortFunc(out, func(a, b *Set) int {
		return cmp.Or(cmp.Compare(heightOf(a), heightOf(b)), strings.Compare(a.Name, b.Name))
	})
	return out
}

// Occupied reports whether the kernel has a set with members that AddFixed makes, or would make.
func (ss *Sets) Occupied(name string) bool {
	s := ss.byName[naming.FixedSet(ss.family.ip, name)]
	return s != nil && s.members.Count() > 0
}

// Wanted yields the sets that are desired.
func (ss *Sets) Wanted() iter.Seq[*Set] {
	return func(yield func(*Set) bool) {
		for _, s := range ss.byName {
			if s.wanted && !yield(s) {
				return
			}
		}
	}
}

// OfPods yields the sets of pods that not every node has, those that only the kernel still has among them.
func (ss *Sets) OfPods() iter.Seq[*Set] {
	return func(yield func(*Set) bool) {
		for _, s := range ss.byName {
			if !s.fixed && s.Timeout == 0 && (s.Type == ipset.HashIP || s.Type == ipset.HashIPPort) && !yield(s) {
				return
			}
		}
	}
}

// Loaded reports whether the kernel's sets have been read.
func (ss *Sets) Loaded() bool { return ss.loaded }

// lacks reports whether an entry of a list cannot be, because the kernel does not take the set that it names.
func (ss *Sets) lacks(e ipset.Entry) bool {
	return e.Set != "" && ss.byName[e.Set] != nil && ss.byName[e.Set].rejected != ""
}

// size counts what the kernel has.
func (ss *Sets) size() (sets, entries int) {
	for _, s := range ss.byName {
		if s.exists {
			sets++
			entries += s.members.Count()
			if s.fixed {
				entries += len(s.initial())
			}
		}
	}
	return sets, entries
}
