package dataplane

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/found"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Pod is a pod as the entries of sets name it.
type Pod struct {
	// Comment is the comment of the pod's entries. LocalComment is that of its entries in the set of the local pods,
	// which distinguishes pods of one name.
	Comment, LocalComment string
	// Local is set for a pod of this node.
	Local bool
}

// Owners returns the pod that an address belongs to, if there is one.
type Owners func(netip.Addr) (p Pod, ok bool)

// hold is what a family's kernel held when the first plan was made while input was missing, and no object that has been
// read accounts for. It stays until nothing is missing. Once an object accounts for something, that belongs to the
// object. Sets and chains hold what of them stays; hold has the rest that is needed to know what may change.
type hold struct {
	sets   *Sets
	chains *Chains
	// owner returns the pod that an address belongs to.
	owner Owners
	// free are the sets with the pods that nothing isolates.
	free []*Set
	// isolated are the local pods' addresses that no default-allow set had: such a set -> its entries that are not
	// added.
	isolated map[*Set]map[ipset.Entry]bool
	// dispatch are the sets that dispatch packets to the rules of a shard, or of a list of a tier, in the kernel's
	// rules.
	dispatch map[found.Dispatch][]*Set
}

// newHold keeps what the kernel holds now and no object accounts for.
func newHold(sets *Sets, chains *Chains, owner Owners, free []*Set) *hold {
	h := &hold{sets: sets, chains: chains, owner: owner, free: free, isolated: map[*Set]map[ipset.Entry]bool{},
		dispatch: map[found.Dispatch][]*Set{}}
	sets.needed = map[string]bool{}
	for name := range found.InForce(chains.texts(), sets.foundEmpty) {
		if c := chains.byName[name]; c != nil { // and not one that only a rule damaged by another program names
			h.keepRules(c)
		}
	}
	for _, s := range sets.byName {
		h.keepMembers(s)
	}
	for _, free := range h.free {
		h.isolated[free] = map[ipset.Entry]bool{}
		for e, st := range sets.local.States() {
			if st.Exists && !free.State(e).Exists && h.sameOwner(sets.local, e) {
				h.isolated[free][e] = true
			}
		}
	}
	return h
}

// release ends keeping what was found.
func (h *hold) release() {
	h.sets.needed = nil
	for _, s := range h.sets.byName {
		s.kept, s.stays = nil, false
	}
	for _, c := range h.chains.byName {
		c.held, c.stays, c.ledTo = nil, false, false
	}
}

// keepList keeps a list as it is, as long as no object wants it: what it does depends on the order of its rules.
func (h *hold) keepList(c *Chain, is found.Chain) {
	if c.stays = c.kernel.Exists && !c.wanted; !c.stays {
		return
	}
	for r := range is.Rules(c.found) {
		for _, name := range r.Sets() {
			h.sets.needed[name] = true
		}
	}
}

// keepRules finds the rules of a chain in force that stay: those that dispatch a pod to a shard, and those that allow.
// Others belong to no policy now.
func (h *hold) keepRules(c *Chain) {
	is := found.ChainOf(c.name)
	if is.List {
		h.keepList(c, is)
		return
	}
	if !c.kernel.Exists || !is.OfPolicies && !is.Dispatches {
		return
	}
	c.stays = is.OfPolicies && !c.wanted
	wanted := map[string]bool{}
	if c.wanted {
		for _, id := range c.desired().IDs() {
			wanted[id] = true
		}
	}
	for r := range is.Rules(c.found) {
		if is.LeadsNoPod(r, h.sets.foundEmpty) {
			continue
		}
		for _, name := range r.Sets() {
			h.sets.needed[name] = true
			if s := h.sets.byName[name]; s != nil && is.Dispatches {
				h.dispatch[is.At] = append(h.dispatch[is.At], s)
			}
		}
		if wanted[r.ID()] {
			continue
		}
		c.held = append(c.held, r)
		if target := h.chains.byName[strings.TrimPrefix(r.Target, "-g ")]; target != nil {
			target.ledTo = true
		}
	}
}

// foundEmpty reports whether the kernel's set of a name is known to have no members.
func (ss *Sets) foundEmpty(name string) bool {
	s := ss.byName[name]
	return s != nil && s.exists && s.mismatch() == "" && s.members.Count() == 0
}

// keepMembers finds what of a set stays: everything if the set is not wanted, and what no object accounts for.
func (h *hold) keepMembers(s *Set) {
	if !s.exists || s.mismatch() != "" {
		return
	}
	s.stays = !s.wanted
	for e, st := range s.States() {
		if !st.Exists || st.Wanted || !h.sameOwner(s, e) {
			continue
		}
		if p, ok := h.owner(e.Prefix.Addr()); ok && p.Local && slices.Contains(h.free, s) {
			continue // something that was read isolates it
		}
		if s.kept == nil {
			s.kept = map[ipset.Entry]bool{}
		}
		s.kept[e] = true
		if e.Set != "" {
			h.sets.needed[e.Set] = true
		}
	}
}

// sameOwner reports whether no other pod has an entry's address than the one that the kernel's entry is for.
func (h *hold) sameOwner(s *Set, e ipset.Entry) bool {
	p, ok := h.owner(e.Prefix.Addr())
	if !ok || s.found.Type != ipset.HashIP && s.found.Type != ipset.HashIPPort {
		return true
	}
	if local := h.sets.local.State(ipset.Entry{Prefix: e.Prefix}); local.Exists {
		return local.Have.Comment == p.LocalComment
	}
	return s.State(e).Have.Comment == p.Comment
}

// reassign ends keeping what was found for an address that another pod has now, or none any more; known is set if the
// former pod was read.
func (h *hold) reassign(host ipset.Entry, known bool) {
	end := func(s *Set, e ipset.Entry) {
		if s.kept[e] && (known || !h.sameOwner(s, e)) {
			delete(s.kept, e)
			s.mark()
		}
	}
	for _, s := range h.sets.byName {
		if s.found.Type != ipset.HashIPPort {
			end(s, host)
			continue
		}
		for e := range s.kept {
			if e.Prefix == host.Prefix {
				end(s, e)
			}
		}
	}
	for s, entries := range h.isolated {
		if known || !h.sameOwner(h.sets.local, host) {
			delete(entries, host)
			s.touch()
		}
	}
}

// isolates reports, for each of the sets with the pods that nothing isolates, whether a pod that was found with an
// address stays out of it.
func (h *hold) isolates(a netip.Addr) (is [len(npc.Directions)]bool) {
	for i, free := range h.free {
		is[i] = h.isolated[free][ipset.Addr(a)]
	}
	return is
}

// bars reports whether a wanted entry must not be added yet: it would open a pod that was isolated, or dispatch it away
// from the rules that it has.
func (h *hold) bars(s *Set, e ipset.Entry) bool {
	switch {
	case h == nil:
		return false
	case h.isolated[s][e]:
		return true
	case s.target == nil:
		return false
	}
	for _, led := range h.dispatch[found.Dispatch{Evaluation: s.order.Evaluation, Direction: s.target.direction}] {
		if led != s && led.kept[e] {
			return true
		}
	}
	return false
}

// FoundLists reports whether the kernel had lists of tiers when it was read first.
func (cs *Chains) FoundLists() bool { return cs.foundLists }

// HeldLists returns what the rules evaluate that stay because input is missing.
func (t *Table) HeldLists() (held rules.ActiveTiers) {
	for _, tier := range policy.Tiers {
		for _, d := range npc.Directions {
			root := t.Chains.byName[naming.TierChain(tier.String(), d)]
			held.Lists[tier][d] = root != nil && root.kernel.Exists && len(root.held) > 0
		}
	}
	for _, j := range t.Chains.jumps {
		held.Node = held.Node || j.EvaluatesNode() && j.Found()
	}
	return held
}

// Listed reports whether the kernel has an entry among the local pods that Admin policies choose in a direction.
func (ss *Sets) Listed(d npc.Direction, e ipset.Entry) bool {
	s := ss.byName[naming.FixedSet(ss.family.ip, naming.TierSet(policy.Admin.String(), d))]
	return s != nil && s.State(e).Exists
}
