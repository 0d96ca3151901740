package dataplane

import (
	"fmt"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/found"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// load takes over the sets that were read from the kernel.
func (ss *Sets) load(listings []ipset.Listing) {
	ss.loaded = true
	there := found.Sets(listings, ss.family.ip, ss.byName, ss.other.byName)
	for name, s := range ss.byName {
		s.load(there[name])
		if !s.wanted && !s.exists {
			ss.remove(s)
		}
	}
	for name, l := range there {
		if ss.byName[name] == nil {
			s := newSet(ss, l.Set, name)
			s.exists, s.asked = true, true
			ss.byName[name] = s
			s.load(l)
		}
	}
}

// markForeign records of the sets that every node has that they were found with chains of another version's layout.
// Sets with hashed names of another layout have other names.
func (ss *Sets) markForeign(layout string) {
	for _, s := range ss.byName {
		if s.fixed && s.Name == s.key {
			s.foreignLayout = layout
			s.touch()
		}
	}
}

// load takes over the chains that were read from the kernel.
func (cs *Chains) load(seen iptables.Seen) {
	cs.foundLayout = found.Layout(seen)
	foreign := cs.ForeignLayout()
	if !cs.read {
		cs.read = true
		cs.foundLists = found.Lists(seen)
	}
	for name, c := range cs.byName {
		sc, ok := seen.Chains[name]
		c.load(sc, ok, foreign != "")
		if !c.wanted && !ok {
			cs.remove(c)
		}
	}
	for name, sc := range seen.Chains {
		if cs.byName[name] == nil {
			cs.enter(name).load(sc, true, false)
		}
	}
	for _, j := range cs.jumps {
		j.Load(seen)
	}
	if cs.textless {
		cs.dropTexts()
	}
}

// load takes over what was read of the chain, if it exists; foreign is set if it is of another layout.
func (c *Chain) load(seen iptables.SeenChain, exists, foreign bool) {
	c.kernel.Load(seen, exists, foreign)
	c.found = seen.Text
	c.Touch()
}

// readUses finds out, once sets and chains have been read, what the rules that were found do with the members of the
// sets: which sets they ask for, and where the sets that are not wanted dispatch to. An interrupted transaction leaves
// sets that no rule asks for yet.
func (ss *Sets) readUses(cs *Chains) {
	if !ss.loaded || !cs.read || cs.textless {
		return
	}
	uses := found.UsesOf(ss.family.ip, cs.texts())
	for name, at := range uses.Evaluated {
		if s := ss.byName[name]; s != nil && !s.wanted {
			s.order.Evaluation, s.order.Direction, s.stage = at.Evaluation, at.Direction, &at
		}
	}
	for _, s := range ss.byName {
		for e := range s.States() {
			if e.Set == "" || !uses.Asked[s.Name] {
				break // no list, or one that no rule asks
			}
			uses.Asked[e.Set] = true
		}
	}
	for _, s := range ss.byName {
		s.asked = s.exists && uses.Asked[s.Name]
	}
}

// texts returns the texts of the rules that were found, by the names of their chains.
func (cs *Chains) texts() map[string][]string {
	texts := make(map[string][]string, len(cs.byName))
	for name, c := range cs.byName {
		texts[name] = c.found
	}
	return texts
}

// ForeignLayout returns the layout of the chains as they were last loaded, if it is another version's; else empty. Such
// are rewritten: what their sets mean is not known.
func (cs *Chains) ForeignLayout() string {
	if cs.foundLayout != naming.Layout {
		return cs.foundLayout
	}
	return ""
}

// DropTexts releases the texts of rules that were found, once they are not needed any more.
func (cs *Chains) DropTexts() {
	if !cs.textless {
		cs.textless = true
		cs.dropTexts()
	}
}

func (cs *Chains) dropTexts() {
	for _, c := range cs.byName {
		c.found = nil
	}
}

// Drift describes how the kernel's sets differ from what the transactions left, by the headers: a set that is missing
// or has another number of members.
func (ss *Sets) Drift(headers []ipset.Header) []string {
	there := make(map[string]*ipset.Header, len(headers))
	for i := range headers {
		there[headers[i].Name] = &headers[i]
	}
	var drift []string
	for name, s := range ss.byName {
		h, ok := there[name]
		switch {
		case !s.exists:
		case !ok:
			drift = append(drift, fmt.Sprintf("set %s (%s) is gone", name, s.about))
		case !s.wanted: // what it still holds, which may be another version's, is gone with it
		case h.Mismatch(s.Set) != "":
			drift = append(drift, s.describeMismatch(h.Mismatch(s.Set)))
		case s.Timeout == 0 && int(h.Elements) != s.members.Count():
			drift = append(drift, fmt.Sprintf("set %s (%s) has %d members, not %d",
				name, s.about, h.Elements, s.members.Count()))
		}
	}
	slices.Sort(drift)
	return drift
}

// MemberDrift describes the same by the members of some sets.
func (ss *Sets) MemberDrift(listings []ipset.Listing) (drift []string) {
	for _, l := range listings {
		s := ss.byName[l.Name]
		if s == nil || !s.wanted || s.Timeout > 0 || len(l.Members) != s.members.Count() {
			continue
		}
		for _, e := range l.Members {
			if st := s.State(e.Entry); !st.Exists || st.Have != e.Attr {
				drift = append(drift, fmt.Sprintf("set %s (%s) has %s", l.Name, s.about, e))
				break
			}
		}
	}
	return drift
}

// Drift returns in words how the kernel's chains differ from what the transactions left. It takes over how the rules
// print that do not differ, and what they have met.
func (cs *Chains) Drift(seen iptables.Seen) []string {
	var drift []string
	for name, c := range cs.byName {
		sc, ok := seen.Chains[name]
		switch {
		case !c.kernel.Exists:
		case !ok:
			drift = append(drift, fmt.Sprintf("chain %s (%s) is gone", name, c.about))
		case c.kernel.Differs(sc):
			drift = append(drift, fmt.Sprintf("chain %s (%s) has other rules", name, c.about))
		default:
			c.kernel.Printed(sc)
			if len(sc.Packets) > 0 {
				c.met = slices.Max(sc.Packets)
			}
		}
	}
	slices.Sort(drift)
	for _, j := range cs.jumps {
		drift = append(drift, j.Drift(seen)...)
	}
	return drift
}
