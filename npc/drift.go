package npc

import (
	"fmt"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/naming"
)

// SetDrift describes how the kernel's sets differ from what the transactions left, judged by headers: a set that is missing or has another
// number of members.
func (m *Model) SetDrift(f Family, headers []ipset.Header) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := make(map[string]*ipset.Header, len(headers))
	for i := range headers {
		there[headers[i].Name] = &headers[i]
	}
	var drift []string
	for name, s := range m.tables[f].sets {
		h, ok := there[name]
		switch {
		case !s.exists:
		case !ok:
			drift = append(drift, fmt.Sprintf("set %s (%s) is gone", name, s.about))
		case !s.wanted: // what it still holds, which may be another version's, is gone with it
		case misfit(s.Set, *h) != "":
			drift = append(drift, fmt.Sprintf("set %s (%s) %s", name, s.about, misfit(s.Set, *h)))
		case int(h.Elements) != s.count():
			drift = append(drift, fmt.Sprintf("set %s (%s) has %d members, not %d", name, s.about, h.Elements, s.count()))
		}
	}
	slices.Sort(drift)
	return drift
}

// count is the number of members that the kernel has.
func (s *set) count() int {
	n := len(s.entries)
	for e := range s.dirty {
		if !s.entries[e].exists {
			n--
		}
	}
	return n
}

// MemberDrift describes how the kernel's sets differ from what the transactions left, judged by their members.
func (m *Model) MemberDrift(f Family, listings []ipset.Listing) []string {
	headers := make([]ipset.Header, 0, len(listings))
	for _, l := range listings {
		headers = append(headers, l.Header)
	}
	drift := m.SetDrift(f, headers)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range listings {
		s := m.tables[f].sets[l.Name]
		if s == nil || !s.wanted || len(l.Members) != s.count() {
			continue
		}
		for _, e := range l.Members {
			if st := s.entries[e.Entry]; !st.exists || st.have != e.Attr {
				drift = append(drift, fmt.Sprintf("set %s (%s) has %s", l.Name, s.about, e))
				break
			}
		}
	}
	return drift
}

// ChainDrift describes how the kernel's chains differ from what the transactions left.
func (m *Model) ChainDrift(f Family, seen iptables.Seen) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var drift []string
	t := m.tables[f]
	for name, c := range t.chains {
		sc, ok := seen.Chains[name]
		switch {
		case !c.exists:
		case !ok:
			drift = append(drift, fmt.Sprintf("chain %s (%s) is gone", name, c.about))
		case c.changed(sc):
			drift = append(drift, fmt.Sprintf("chain %s (%s) has other rules", name, c.about))
		default:
			c.printed = sc.Text
			if len(sc.Packets) > 0 {
				c.met = slices.Max(sc.Packets)
			}
		}
	}
	slices.Sort(drift)
	if t.jump == nil {
		return drift
	}
	jumps, before := t.hooked(seen)
	for _, r := range before {
		drift = append(drift, fmt.Sprintf("%s accepts before us: %s", naming.HookChain, r))
	}
	if len(jumps) != 1 {
		drift = append(drift, fmt.Sprintf("%s has %d jumps to %s", naming.HookChain, len(jumps), naming.ForwardChain))
	}
	return drift
}
