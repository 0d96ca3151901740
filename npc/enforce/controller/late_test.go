package controller

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// TestS115_WhoseConnectionsMayHaveBegunBefore shows which addresses became local pods' that were not known as such, of
// pods whose packets policies may deny.
func TestS115_WhoseConnectionsMayHaveBegunBefore(t *testing.T) {
	pod := func(m *Controller, facts string) { m.SetPod(fixture.Pod(facts)) }
	const web = "a/web n 10.32.1.2 app=web"
	for _, c := range []struct {
		name   string
		had    string // the addresses of weave-local-pods at the start; "none" if the kernel lacks the set
		before func(m *Controller)
		after  func(m *Controller)
		want   string
	}{
		{"new_on_the_node", "none", func(m *Controller) { pod(m, web) }, nil, ""},
		{"known_at_the_start", "10.32.1.2", func(m *Controller) { pod(m, web) }, nil, ""},
		{"began_before_the_start", "", func(m *Controller) { pod(m, web) }, nil, "10.32.1.2"},
		{"free_pods", "", func(m *Controller) { pod(m, "a/free n 10.32.1.6") }, nil, ""},
		{"known_after_the_start", "", nil, func(m *Controller) { pod(m, web) }, "10.32.1.2"},
		{"another_nodes", "", nil, func(m *Controller) { pod(m, "a/web n2 10.32.1.2 app=web") }, ""},
		{"isolated_later", "10.32.1.6", func(m *Controller) { pod(m, "a/free n 10.32.1.6") },
			func(m *Controller) { pod(m, "a/free n 10.32.1.6 app=web") }, ""},
		{"a_list_may_deny_it", "", nil, func(m *Controller) {
			m.SetClusterPolicy(fixture.ClusterPolicy(t, "c", `{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{namespaces: {}}]}]}`))
			m.carryOut(false)
			m.Planner().Resume()
			pod(m, "a/free n 10.32.1.6")
		}, "10.32.1.6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := New(enforce.Config{NodeName: "n", ForwardJump: true, AllowAction: "ACCEPT", FailClosed: enforce.FailClosedAuto, LateMark: 0x2000})
			m.SetPolicy(fixture.Policy(t, "a/web", `{podSelector: {matchLabels: {app: web}}}`))
			if c.before != nil {
				c.before(m)
			}
			local := ipset.Listing{Header: ipset.Header{Set: ipset.Set{Name: "weave-local-pods", Type: ipset.HashIP, Family: ipset.IPv4}}}
			for _, a := range strings.Fields(c.had) {
				if c.had != "none" {
					local.Members = append(local.Members, ipset.Element{Entry: ipset.Addr(netip.MustParseAddr(a))})
				}
			}
			for _, f := range npc.Families {
				var sets []ipset.Listing
				if f == npc.IPv4 && c.had != "none" {
					sets = append(sets, local)
				}
				m.Planner().LoadSets(f, sets)
				m.Planner().LoadChains(f, iptables.Seen{})
			}
			m.SetSynced()
			m.carryOut(false)
			m.Planner().Resume()
			var got []netip.Addr
			if got = m.Planner().TakeLate(); c.after != nil {
				c.after(m)
				m.carryOut(false)
				got = append(got, m.Planner().TakeLate()...)
			}
			if want := fixture.Addrs(c.want); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if again := m.Planner().TakeLate(); len(again) > 0 {
				t.Errorf("taken twice: %v", again)
			}
			m.Planner().LoadSets(npc.IPv4, nil) // as after drift
			m.carryOut(false)
			if again := m.Planner().TakeLate(); len(again) > 0 {
				t.Errorf("after drift: %v", again)
			}
		})
	}
}
