package dataplane

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// Pod is a pod as the entries of sets name it.
type Pod struct {
	// Comment is the comment of the pod's entries, and LocalComment that of its entries in the set of the local pods, which tells pods
	// of one name apart.
	Comment, LocalComment string
	// Local is set for a pod of this node.
	Local bool
}

// Owners returns the pod that an address belongs to, if there is one.
type Owners func(netip.Addr) (p Pod, ok bool)

// hold is what a family's kernel held when the first plan was made while input was missing, and no object that has been
// read accounts for. It stays until nothing is missing. What an object accounts for once is the object's from then on.
type hold struct {
	table *Table
	// owner returns the pod that an address belongs to.
	owner Owners
	// free are the sets with the pods that nothing isolates.
	free []*Set
	// sets are those that nobody has wanted since.
	sets map[*Set]bool
	// entries are, of those sets and of wanted ones, the members that stay, by the pods that they are for.
	entries map[*Set]map[ipset.Entry]bool
	// isolated are the local pods' addresses that no default-allow set had: such a set -> its entries that are not added.
	isolated map[*Set]map[ipset.Entry]bool
	// dispatch are the sets by which the kernel's rules lead packets to the rules of a shard.
	dispatch [len(traffic.Directions)][]*Set
	// needed are the names of the sets that rules and lists that stay refer to.
	needed map[string]bool
	// chains are those that stay.
	chains map[*Chain]bool
}

// Hold keeps what the family's kernel holds now and no object accounts for, until Release; free are the sets with the pods that
// nothing isolates.
func (t *Table) Hold(owner Owners, free []*Set) {
	h := &hold{sets: map[*Set]bool{}, entries: map[*Set]map[ipset.Entry]bool{}, isolated: map[*Set]map[ipset.Entry]bool{},
		needed: map[string]bool{}, chains: map[*Chain]bool{}, table: t, free: free, owner: owner}
	for _, c := range t.chains {
		h.keepRules(c)
	}
	for _, s := range t.sets {
		h.keepMembers(s)
	}
	for _, free := range h.free {
		h.isolated[free] = map[ipset.Entry]bool{}
		for e, st := range t.Local.entries {
			if st.Exists && !free.entries[e].Exists && h.sameOwner(t.Local, e) {
				h.isolated[free][e] = true
			}
		}
	}
	t.hold = h
	t.DropTexts()
}

// Holding reports whether Hold was called and Release not since.
func (t *Table) Holding() bool { return t.hold != nil }

// Release ends keeping what was found.
func (t *Table) Release() {
	t.hold = nil
	for _, c := range t.chains {
		c.held = nil
	}
	t.touchAll()
}

// shardOrDispatch matches the names of the chains that stand for namespaces' policies; nodes of the dispatch tree have digits only.
var shardOrDispatch = regexp.MustCompile(`^` + naming.ChainPrefix + `-([IE])-([a-z2-7]{16}|[01]+)$`)

// heldChain returns what a chain is by its name: whether it stands for namespaces' policies, leads to such chains, and in which direction.
func heldChain(c *Chain) (ofPolicies, dispatches bool, d traffic.Direction) {
	name := shardOrDispatch.FindStringSubmatch(c.name)
	dispatches = c.name == naming.IngressChain || c.name == naming.EgressCustomChain || name != nil && strings.Trim(name[2], "01") == ""
	if c.name == naming.EgressCustomChain || name != nil && name[1] == "E" {
		d = traffic.Egress
	}
	return name != nil, dispatches, d
}

// keepRules finds the rules of a chain that stay: those that lead to the rules of a shard, and those that allow.
func (h *hold) keepRules(c *Chain) {
	ofPolicies, dispatches, d := heldChain(c)
	if !c.exists || !ofPolicies && !dispatches {
		return
	}
	h.chains[c] = ofPolicies && !c.wanted
	wanted := map[string]bool{}
	if c.wanted {
		for _, id := range c.desired().IDs() {
			wanted[id] = true
		}
	}
	for _, text := range c.found {
		r, ours := iptables.Found(text)
		leads := strings.HasPrefix(r.Target, "-g "+naming.BranchChain(d, ""))
		allows := r.Target == "-j ACCEPT" || r.Target == "-j RETURN"
		if !ours || dispatches && !leads || !dispatches && !allows {
			continue
		}
		for _, name := range r.Sets() {
			h.needed[name] = true
			if s := h.table.sets[name]; s != nil && dispatches {
				h.dispatch[d] = append(h.dispatch[d], s)
			}
		}
		if !wanted[r.ID()] {
			c.held = append(c.held, r)
		}
	}
}

// keepMembers finds what of a set stays: everything of one that nobody wants, and what no object accounts for.
func (h *hold) keepMembers(s *Set) {
	if !s.exists || s.mismatch() != "" {
		return
	}
	h.sets[s] = !s.wanted
	for e, st := range s.entries {
		if !st.Exists || st.Wanted || !h.sameOwner(s, e) {
			continue
		}
		if p, ok := h.owner(e.Prefix.Addr()); ok && p.Local && slices.Contains(h.free, s) {
			continue // something that was read isolates it
		}
		if h.entries[s] == nil {
			h.entries[s] = map[ipset.Entry]bool{}
		}
		h.entries[s][e] = true
		if e.Set != "" {
			h.needed[e.Set] = true
		}
	}
}

// sameOwner reports whether no other pod has an entry's address than the one that the kernel's entry is for.
func (h *hold) sameOwner(s *Set, e ipset.Entry) bool {
	p, ok := h.owner(e.Prefix.Addr())
	if !ok || s.found.Type != ipset.HashIP && s.found.Type != ipset.HashIPPort {
		return true
	}
	if local := h.table.Local.entries[ipset.Addr(e.Prefix.Addr())]; local.Exists {
		return local.Have.Comment == p.LocalComment
	}
	return s.entries[e].Have.Comment == p.Comment
}

// Reassign ends keeping what was found for an address that another pod has now, or none any more; known is set if the former pod was
// read.
func (t *Table) Reassign(a netip.Addr, known bool) {
	h := t.hold
	if h == nil {
		return
	}
	end := func(s *Set, e ipset.Entry) {
		if h.entries[s][e] && (known || !h.sameOwner(s, e)) {
			delete(h.entries[s], e)
			t.mark(s)
		}
	}
	for s, entries := range h.entries {
		if s.found.Type != ipset.HashIPPort {
			end(s, ipset.Addr(a))
			continue
		}
		for e := range entries {
			if e.Prefix.Addr() == a {
				end(s, e)
			}
		}
	}
	for s, entries := range h.isolated {
		if e := ipset.Addr(a); known || !h.sameOwner(t.Local, e) {
			delete(entries, e)
			t.touch(s)
		}
	}
}

// HoldsPods reports whether local pods stay that no object accounts for.
func (t *Table) HoldsPods() bool { return t.hold != nil && len(t.hold.entries[t.Local]) > 0 }

// HoldsIsolated reports, for each of the sets given to Hold, whether a pod that was found with an address stays isolated.
func (t *Table) HoldsIsolated(a netip.Addr) (is [len(traffic.Directions)]bool) {
	if t.hold != nil {
		for i, free := range t.hold.free {
			is[i] = t.hold.isolated[free][ipset.Addr(a)]
		}
	}
	return is
}

// keeps reports whether an entry that the kernel has and nobody wants stays.
func (h *hold) keeps(s *Set, e ipset.Entry) bool { return h != nil && h.entries[s][e] }

// accountFor ends keeping a member of a set: some object accounts for it.
func (h *hold) accountFor(s *Set, e ipset.Entry) {
	if h != nil {
		delete(h.entries[s], e)
	}
}

// keepNeeded keeps the members of a set that is not wanted any more if rules or lists that stay refer to it.
func (h *hold) keepNeeded(s *Set) {
	if h == nil || !h.needed[s.Name] {
		return
	}
	h.entries[s] = map[ipset.Entry]bool{}
	for e, st := range s.entries {
		if st.Exists && !s.table.Flows.Has(e.Prefix.Addr()) {
			h.entries[s][e] = true
		}
	}
}

// bars reports whether an entry that is wanted is not added all the same: it would free a pod that was isolated, or lead
// it away from the rules that it has.
func (h *hold) bars(s *Set, e ipset.Entry) bool {
	switch {
	case h == nil:
		return false
	case h.isolated[s][e]:
		return true
	case s.target == nil:
		return false
	}
	for _, led := range h.dispatch[s.target.direction] {
		if led != s && h.entries[led][e] {
			return true
		}
	}
	return false
}

// keepsSet reports whether a set that nobody wants stays.
func (h *hold) keepsSet(s *Set) bool {
	if h == nil {
		return false
	}
	return h.sets[s] || h.needed[s.Name] || len(h.entries[s]) > 0
}

// keepsChain reports whether a chain that nobody wants stays.
func (h *hold) keepsChain(c *Chain) bool { return h != nil && (h.chains[c] || len(c.held) > 0) }

// stillHeld returns the rules that stay beside those that are desired.
func (c *Chain) stillHeld(w iptables.Chain) []iptables.Rule {
	if len(c.held) == 0 {
		return nil
	}
	wanted := w.IDs()
	return slices.DeleteFunc(slices.Clone(c.held), func(r iptables.Rule) bool { return slices.Contains(wanted, r.ID()) })
}

// accountFor ends keeping a rule that was found: a policy that was read asks for it. Rules of the dispatch are kept, because others may
// need them.
func (c *Chain) accountFor(r *rule) {
	if len(c.held) > 0 && c.namespace != "" {
		id := r.id(c)
		c.held = slices.DeleteFunc(c.held, func(h iptables.Rule) bool { return h.ID() == id })
	}
}
