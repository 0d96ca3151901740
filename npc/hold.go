package npc

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/naming"
)

// hold is what a family's kernel held when the first plan was made while input was missing, and no object that has been
// read accounts for. It stays until nothing is missing. What an object accounts for once is the object's from then on.
type hold struct {
	// sets are those that nobody has wanted since.
	sets map[*set]bool
	// entries are, of those sets and of wanted ones, the members that stay, by the pods that they are for.
	entries map[*set]map[ipset.Entry]bool
	// isolated are the local pods' addresses that no default-allow set had: such a set -> its entries that are not added.
	isolated map[*set]map[ipset.Entry]bool
	// leads are the sets by which the kernel's rules lead packets to the rules of a part.
	leads [len(directions)][]*set
	// needed are the names of the sets that rules and lists that stay refer to.
	needed map[string]bool
	// chains are those that stay.
	chains map[*chain]bool
	table  *table
	// free are the sets with the pods that nothing isolates.
	free [len(directions)]*set
	// owner returns the pod that an address belongs to, or nil.
	owner func(netip.Addr) *pod
}

// newHold returns what a family's kernel holds now, as far as it stays; owner returns the pod that an address belongs to, and free are the sets
// with the pods that nothing isolates.
func newHold(t *table, owner func(netip.Addr) *pod, free [len(directions)]*set) *hold {
	h := &hold{sets: map[*set]bool{}, entries: map[*set]map[ipset.Entry]bool{}, isolated: map[*set]map[ipset.Entry]bool{},
		needed: map[string]bool{}, chains: map[*chain]bool{}, table: t, free: free, owner: owner}
	for _, c := range t.chains {
		h.keepRules(t, c)
	}
	for _, s := range t.sets {
		h.keepMembers(s)
	}
	for _, free := range h.free {
		h.isolated[free] = map[ipset.Entry]bool{}
		for e, st := range t.local.entries {
			if st.exists && !free.entries[e].exists && h.sameOwner(t.local, e) {
				h.isolated[free][e] = true
			}
		}
	}
	return h
}

// forgetTexts gives up the texts of rules that were found, once they have been looked at or nobody will.
func (t *table) forgetTexts(useless bool) {
	if !useless && t.hold == nil || t.textless {
		return
	}
	t.textless = true
	for _, c := range t.chains {
		c.found = nil
	}
}

// partOrBranch matches the names of the chains that stand for namespaces' policies; branches have digits only.
var partOrBranch = regexp.MustCompile(`^` + naming.ChainPrefix + `-([IE])-([a-z2-7]{16}|[01]+)$`)

// keepRules finds the rules of a chain that stay: those that lead to the rules of a part, and those that allow.
func (h *hold) keepRules(t *table, c *chain) {
	name := partOrBranch.FindStringSubmatch(c.name)
	way := c.name == naming.IngressChain || c.name == naming.EgressCustomChain || name != nil && strings.Trim(name[2], "01") == ""
	if !c.exists || name == nil && !way {
		return
	}
	h.chains[c] = name != nil && !c.wanted
	wanted := map[string]bool{}
	if c.wanted {
		for _, id := range c.want().IDs() {
			wanted[id] = true
		}
	}
	d := Ingress
	if c.name == naming.EgressCustomChain || name != nil && name[1] == "E" {
		d = Egress
	}
	for _, text := range c.found {
		r, ours := iptables.Found(text)
		leads := strings.HasPrefix(r.Target, "-g "+naming.BranchChain(d, ""))
		allows := r.Target == "-j ACCEPT" || r.Target == "-j RETURN"
		if !ours || way && !leads || !way && !allows {
			continue
		}
		for _, name := range r.Sets() {
			h.needed[name] = true
			if s := t.sets[name]; s != nil && way {
				h.leads[d] = append(h.leads[d], s)
			}
		}
		if !wanted[r.ID()] {
			c.held = append(c.held, r)
		}
	}
}

// keepMembers finds what of a set stays: all of one that nobody wants, and what no object accounts for.
func (h *hold) keepMembers(s *set) {
	if !s.exists || s.misfit() != "" {
		return
	}
	h.sets[s] = !s.wanted
	for e, st := range s.entries {
		if !st.exists || st.wanted || !h.sameOwner(s, e) {
			continue
		}
		if p := h.owner(e.Prefix.Addr()); slices.Contains(h.free[:], s) && p != nil && p.local {
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
func (h *hold) sameOwner(s *set, e ipset.Entry) bool {
	p := h.owner(e.Prefix.Addr())
	if p == nil || s.found.Type != ipset.HashIP && s.found.Type != ipset.HashIPPort {
		return true
	}
	local := s.table.local.entries[ipset.Addr(e.Prefix.Addr())]
	if local.exists { // which tells pods of one name apart
		return local.have.Comment == comment(p.id()+" "+p.String())
	}
	return s.entries[e].have.Comment == comment(p.String())
}

// reassign ends keeping what was found for an address that another pod has now, or none any more.
func (h *hold) reassign(a netip.Addr, known bool) {
	if h == nil {
		return
	}
	end := func(s *set, e ipset.Entry) {
		if h.entries[s][e] && (known || !h.sameOwner(s, e)) {
			delete(h.entries[s], e)
			h.table.dirtySets[s] = struct{}{}
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
		if e := ipset.Addr(a); known || !h.sameOwner(h.table.local, e) {
			delete(entries, e)
			h.table.touch(s)
		}
	}
}

// keeps reports whether an entry that the kernel has and nobody wants stays.
func (h *hold) keeps(s *set, e ipset.Entry) bool { return h != nil && h.entries[s][e] }

// accountFor ends keeping a member of a set: some object accounts for it.
func (h *hold) accountFor(s *set, e ipset.Entry) {
	if h != nil {
		delete(h.entries[s], e)
	}
}

// keepNeeded keeps the members of a set that is not wanted any more if rules or lists that stay refer to it.
func (h *hold) keepNeeded(s *set) {
	if h == nil || !h.needed[s.Name] {
		return
	}
	h.entries[s] = map[ipset.Entry]bool{}
	for e, st := range s.entries {
		if st.exists && !s.table.flows.Has(e.Prefix.Addr()) {
			h.entries[s][e] = true
		}
	}
}

// bars reports whether an entry that is wanted is not added all the same: it would free a pod that was isolated, or lead
// it away from the rules that it has.
func (h *hold) bars(s *set, e ipset.Entry) bool {
	switch {
	case h == nil:
		return false
	case h.isolated[s][e]:
		return true
	case s.leads == nil:
		return false
	}
	for _, led := range h.leads[s.leads.direction] {
		if led != s && h.entries[led][e] {
			return true
		}
	}
	return false
}

// keepsSet reports whether a set that nobody wants stays.
func (h *hold) keepsSet(s *set) bool {
	if h == nil {
		return false
	}
	return h.sets[s] || h.needed[s.Name] || len(h.entries[s]) > 0
}

// stillHeld returns the rules that stay beside those that are wanted, given by their ids. What allows and is wanted once is not kept
// after that; the way to it is, because others may need it.
func (c *chain) stillHeld(wanted []string) []iptables.Rule {
	if len(c.held) == 0 {
		return nil
	}
	still := slices.DeleteFunc(slices.Clone(c.held), func(r iptables.Rule) bool { return slices.Contains(wanted, r.ID()) })
	if c.namespace != "" {
		c.held = still
	}
	return still
}

// keepsChain reports whether a chain that nobody wants stays.
func (h *hold) keepsChain(c *chain) bool { return h != nil && (h.chains[c] || len(c.held) > 0) }

// holdsPods reports whether local pods stay that no object accounts for.
func (t *table) holdsPods() bool { return t.hold != nil && len(t.hold.entries[t.local]) > 0 }

// isolates reports for each direction whether a pod that was found with an address stays isolated.
func (h *hold) isolates(a netip.Addr) (is [len(directions)]bool) {
	if h != nil {
		for d, free := range h.free {
			is[d] = h.isolated[free][ipset.Addr(a)]
		}
	}
	return is
}
