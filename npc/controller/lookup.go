package controller

import (
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// NameOf is the pod that has an address, as namespace/name; "node" for an address of a node; empty for any other.
func (m *Controller) NameOf(a netip.Addr) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.claims.Owner(a); p != nil {
		return p.String()
	}
	if _, own := m.nodeAddrs[a]; own || m.hosts[a] > 0 {
		return "node"
	}
	return ""
}

// Isolating are the policies that isolate the local pod with an address in a direction, as namespace/name, sorted; at most
// as many as a rule's comment names.
func (m *Controller) Isolating(a netip.Addr, d traffic.Direction) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.claims.Owner(a)
	if q == nil || !q.local {
		return nil
	}
	var out []string
	for _, p := range q.ns.policies {
		if _, ok := p.selected[q]; ok && p.isolates[d] {
			out = append(out, p.key())
		}
	}
	slices.Sort(out)
	return out[:min(len(out), dataplane.MaxNamedOwners)]
}
