package controller

import (
	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// SetDrift returns in words how a family's sets differ from what the transactions left, judged by headers.
func (m *Controller) SetDrift(f traffic.Family, headers []ipset.Header) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tables[f].Sets.Drift(headers)
}

// MemberDrift returns the same, judged by the members.
func (m *Controller) MemberDrift(f traffic.Family, listings []ipset.Listing) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tables[f].Sets.MemberDrift(listings)
}

// ChainDrift returns in words how a family's chains differ from what the transactions left.
func (m *Controller) ChainDrift(f traffic.Family, seen iptables.Seen) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tables[f].Chains.Drift(seen)
}
