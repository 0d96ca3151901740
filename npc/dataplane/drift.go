package dataplane

import (
	"fmt"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/naming"
)

// SetDrift returns in words how the kernel's sets differ from what the transactions left, judged by headers: a set that is missing
// or has another number of members.
func (t *Table) SetDrift(headers []ipset.Header) []string {
	there := make(map[string]*ipset.Header, len(headers))
	for i := range headers {
		there[headers[i].Name] = &headers[i]
	}
	var drift []string
	for name, s := range t.sets {
		h, ok := there[name]
		switch {
		case !s.exists:
		case !ok:
			drift = append(drift, fmt.Sprintf("set %s (%s) is gone", name, s.about))
		case !s.wanted: // what it still holds, which may be another version's, is gone with it
		case mismatch(s.Set, *h) != "":
			drift = append(drift, s.describeMismatch(mismatch(s.Set, *h)))
		case int(h.Elements) != s.count():
			drift = append(drift, fmt.Sprintf("set %s (%s) has %d members, not %d", name, s.about, h.Elements, s.count()))
		}
	}
	slices.Sort(drift)
	return drift
}

// MemberDrift returns the same, judged by the members.
func (t *Table) MemberDrift(listings []ipset.Listing) []string {
	headers := make([]ipset.Header, 0, len(listings))
	for _, l := range listings {
		headers = append(headers, l.Header)
	}
	drift := t.SetDrift(headers)
	for _, l := range listings {
		s := t.sets[l.Name]
		if s == nil || !s.wanted || len(l.Members) != s.count() {
			continue
		}
		for _, e := range l.Members {
			if st := s.entries[e.Entry]; !st.Exists || st.Have != e.Attr {
				drift = append(drift, fmt.Sprintf("set %s (%s) has %s", l.Name, s.about, e))
				break
			}
		}
	}
	return drift
}

// ChainDrift returns in words how the kernel's chains differ from what the transactions left. It takes over how the rules print that
// do not differ, and what they have met.
func (t *Table) ChainDrift(seen iptables.Seen) []string {
	var drift []string
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
