package npc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/naming"
)

// maxRefused is how many rules of a policy are left out one by one in a family. With more, all of its rules are: each takes several restores to
// be found.
const maxRefused = 4

// Refuse leaves out rules that the kernel did not take, id -> reason, until Retry. It returns those that cannot be left out: only those can that
// only allow, or only report.
func (m *Model) Refuse(f Family, reasons map[string]string) (others []string) {
	if len(reasons) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tables[f]
	found, counts := map[string]bool{}, map[*policy]int{}
	for _, c := range t.chains {
		for _, r := range c.rules {
			if len(r.owners) == 0 && !r.reports {
				continue
			}
			if id := r.id(c); r.refused == "" && reasons[id] != "" {
				r.refused, t.refusing, found[id] = reasons[id], true, true
				c.lacks(id)
			}
			if r.refused != "" {
				for p := range r.owners {
					counts[p]++
				}
			}
		}
	}
	t.refuseAll(counts)
	return missing(reasons, found)
}

// refuseAll leaves out all rules that only policies ask for of which too many are refused.
func (t *table) refuseAll(counts map[*policy]int) {
	maps.DeleteFunc(counts, func(_ *policy, n int) bool { return n <= maxRefused })
	if len(counts) == 0 {
		return
	}
	for _, c := range t.chains {
		for _, r := range c.rules {
			if len(r.owners) == 0 || r.refused != "" {
				continue
			}
			if !slices.ContainsFunc(slices.Collect(maps.Keys(r.owners)), func(p *policy) bool { return counts[p] == 0 }) {
				c.touch() // the rule goes, if it is there
				r.refused = fmt.Sprintf("more than %d rules of the policy are refused: all are left out", maxRefused)
			}
		}
	}
}

// RefuseSets leaves out sets that the kernel did not take, name -> reason, and the rules that need them, until Retry. It returns those that
// cannot be left out, which are those that every node has.
func (m *Model) RefuseSets(f Family, reasons map[string]string) (others []string) {
	if len(reasons) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tables[f]
	found := map[string]bool{}
	for name, why := range reasons {
		s := t.sets[name]
		if s == nil || s.fixed || !s.wanted {
			continue
		}
		s.refused, s.exists, t.refusing, found[name] = why, false, true, true
		t.refused[s.key] = why
		s.forget()
	}
	for _, c := range t.chains {
		var lacking []string
		for _, r := range c.rules {
			if t.lacksSet(r) != "" {
				lacking = append(lacking, r.id(c))
			}
		}
		c.lacks(lacking...)
	}
	for _, l := range t.sets {
		if l.Type != ipset.ListSet {
			continue
		}
		for e, st := range l.entries {
			if found[e.Set] {
				st.have, st.exists = ipset.Attr{}, false
				l.note(e, st)
			}
		}
	}
	return missing(reasons, found)
}

// missing returns the keys of reasons that were not found.
func missing(reasons map[string]string, found map[string]bool) (others []string) {
	for id := range reasons {
		if !found[id] {
			others = append(others, id)
		}
	}
	slices.Sort(others)
	return others
}

// Retry has the rules and sets of a family planned again that were refused.
func (m *Model) Retry(f Family) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tables[f]
	if !t.refusing {
		return
	}
	t.refusing = false
	clear(t.refused)
	for _, c := range t.chains {
		for _, r := range c.rules {
			r.refused = ""
		}
		c.touch()
	}
	for _, s := range t.sets {
		s.refused = ""
		if len(s.dirty) > 0 || !s.exists {
			t.touch(s)
		}
	}
}

// Rejected returns the policies of which the kernel does not take a rule, or a set that a rule needs, in order.
func (m *Model) Rejected() []InvalidPolicy {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[string]InvalidPolicy{}
	for _, t := range m.tables {
		if !t.refusing {
			continue
		}
		for _, c := range t.chains {
			for _, r := range c.rules {
				why := t.refusal(r)
				if why == "" {
					continue
				}
				for p := range r.owners {
					found[p.key()] = p.refused(why)
				}
			}
		}
		m.unreachable(t.family, func(p *policy, why string) { found[p.key()] = p.refused(why) })
	}
	out := make([]InvalidPolicy, 0, len(found))
	for _, p := range found {
		out = append(out, p)
	}
	sort.Slice(out, func(i, j int) bool {
		return podKey(out[i].Namespace, out[i].Name) < podKey(out[j].Namespace, out[j].Name)
	})
	return out
}

func (p *policy) refused(why string) InvalidPolicy {
	return InvalidPolicy{Namespace: p.namespace, Name: p.name, UID: p.uid, Reason: why, Refused: true}
}

// unreachable finds the policies whose rules cannot be reached by some of their pods, because a set on the way is refused.
func (m *Model) unreachable(f Family, found func(p *policy, why string)) {
	for _, w := range m.ways {
		for _, pt := range w.parts {
			why := pt.isolated[f].refused
			for _, b := range pt.through {
				why = cmp.Or(why, b.pods[f].refused)
			}
			if why != "" {
				for p := range pt.policies {
					found(p, why)
				}
			}
		}
	}
}

// LoggingRejected returns why the kernel rejects a rule that reports dropped packets, in any family and direction; empty if it takes them all.
func (m *Model) LoggingRejected() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tables {
		for _, d := range directions {
			for _, r := range t.chains[naming.DropChain(d)].rules {
				if why := t.refusal(r); why != "" {
					return why
				}
			}
		}
	}
	return ""
}

// refusal says why a rule is left out; empty if it is not.
func (t *table) refusal(r *rule) string {
	if r.refused != "" || !t.refusing {
		return r.refused
	}
	return t.lacksSet(r)
}

// lacksSet returns why a set is left out that a rule refers to; empty if none is.
func (t *table) lacksSet(r *rule) string {
	if len(t.refused) == 0 {
		return ""
	}
	for _, name := range setsOf(r.match) {
		if why := t.refused[name]; why != "" {
			return why
		}
	}
	return ""
}

// setsOf returns the names of the sets that a match refers to.
func setsOf(match string) (names []string) {
	for {
		_, rest, found := strings.Cut(match, "-m set --match-set ")
		if !found {
			return names
		}
		name, after, _ := strings.Cut(rest, " ")
		names, match = append(names, name), after
	}
}

// refuses says whether an entry of a list cannot be, because the kernel does not take the set that it names.
func (t *table) refuses(e ipset.Entry) bool {
	return t.refusing && e.Set != "" && t.sets[e.Set] != nil && t.sets[e.Set].refused != ""
}

// lacks has the next plan write rules that were planned and did not come into the kernel's chain.
func (c *chain) lacks(ids ...string) {
	if len(ids) == 0 {
		return
	}
	gone := map[string]bool{}
	for _, id := range ids {
		gone[id] = true
	}
	c.have, c.printed = slices.DeleteFunc(c.have, func(have string) bool { return gone[have] }), nil
	c.touch()
}
