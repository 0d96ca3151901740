package npc

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
)

// Refuse leaves out the rule with an id, which the kernel did not take for the given reason, until Retry. It says whether there is such a
// rule that can be left out: one that only allows, or only reports.
func (m *Model) Refuse(f Family, id, reason string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tables[f]
	for _, c := range t.chains {
		for _, r := range c.rules {
			if (len(r.owners) > 0 || r.reports) && r.refused == "" && r.id(c) == id {
				r.refused = reason
				t.refusing = true
				c.lacks(id)
				return true
			}
		}
	}
	return false
}

// RefuseSet leaves out a set that the kernel did not take for the given reason, and the rules that need it, until Retry. It says whether the set
// can be left out: one that every node has cannot.
func (m *Model) RefuseSet(f Family, name, reason string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tables[f]
	s := t.sets[name]
	if s == nil || s.fixed || !s.wanted {
		return false
	}
	s.refused, s.exists = reason, false
	s.forget()
	t.refusing = true
	for _, c := range t.chains {
		for _, r := range c.rules {
			if needs(r.match, s.key) {
				c.lacks(r.id(c))
			}
		}
	}
	for _, l := range t.sets {
		if st, ok := l.entries[ipset.Member(name)]; ok {
			st.have, st.exists = ipset.Attr{}, false
			l.note(ipset.Member(name), st)
		}
	}
	return true
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

// Refused are the policies of which the kernel does not take a rule, or a set that a rule needs, in order.
func (m *Model) Refused() []InvalidPolicy {
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

// Unreporting says why packets that are dropped are not reported, in some family and direction; empty if they are.
func (m *Model) Unreporting() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tables {
		for _, d := range directions {
			for _, r := range t.chains[dropChain(d)].rules {
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
	for _, s := range t.sets {
		if s.refused != "" && needs(r.match, s.key) {
			return s.refused
		}
	}
	return ""
}

// needs says whether a rule refers to a set.
func needs(match, set string) bool { return strings.Contains(match, matchSet(set, "")) }

// refuses says whether an entry of a list cannot be, because the kernel does not take the set that it names.
func (t *table) refuses(e ipset.Entry) bool {
	return t.refusing && e.Set != "" && t.sets[e.Set] != nil && t.sets[e.Set].refused != ""
}

// lacks takes note that a rule that was planned did not come into the kernel's chain.
func (c *chain) lacks(id string) {
	c.have, c.printed = slices.DeleteFunc(c.have, func(have string) bool { return have == id }), nil
	c.touch()
}
