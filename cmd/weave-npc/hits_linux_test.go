package main

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	npccluster "github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/verdict"
	"github.com/weave-npc/weave-npc/npc/flow"
	"github.com/weave-npc/weave-npc/npc/source/snapshot"
)

// TestHitsAreOfTheRulesThatAreShown: what a node counts under a content is what show finds under it.
func TestHitsAreOfTheRulesThatAreShown(t *testing.T) {
	for _, c := range []struct {
		folder, node, from, to string
		service                flow.Service
		tier, policy           string
		number                 int
	}{
		{"shop", "node1", "10.32.2.3", "10.32.1.4", flow.Service{Protocol: 6, Port: 5432}, "", "shop/db", 1},
		{"shop", "node1", "198.51.100.1", "10.32.1.4", flow.Service{Protocol: 17, Port: 53}, "", "shop/db", 3},
		{"shop", "node1", "10.32.1.4", "10.32.1.2", flow.Service{Protocol: 6, Port: 8080}, "", "", 0}, // no rule of egress allows it
		{"tiers", "node1", "10.32.1.2", "10.32.2.2", flow.Service{Protocol: 6, Port: 5432}, "Admin", "pci", 1},
		{"tiers", "node1", "10.32.1.2", "192.0.2.1", flow.Service{Protocol: 6, Port: 443}, "Admin", "pci", 2},
		{"tiers", "node1", "10.32.1.3", "192.0.2.1", flow.Service{Protocol: 6, Port: 443}, "Admin", "updates", 2}, // it fails closed
		{"tiers", "node1", "10.32.2.2", "10.32.1.3", flow.Service{Protocol: 6, Port: 80}, "Baseline", "default", 2},
		{"tiers", "node1", "10.32.2.3", "10.32.1.2", flow.Service{Protocol: 6, Port: 9100}, "Admin", "monitoring", 1},
	} {
		manifests, err := snapshot.Open("testdata/"+c.folder, nil)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := manifests.Objects()
		if err != nil {
			t.Fatal(err)
		}
		m, all := controller.New(enforce.Config{NodeName: c.node}), npccluster.New()
		objects.Deliver(m)
		objects.Deliver(all)
		by, _ := m.Lookup().Evaluate(verdict.NoBound, verdict.Flow{From: netip.MustParseAddr(c.from),
			To: netip.MustParseAddr(c.to), Service: c.service})
		shown := verdict.By{}
		for _, row := range explain.Policies(all.View(), "") {
			if row.Policy == c.policy && row.Tier == c.tier {
				shown = verdict.By{Tier: row.Tier, Policy: row.Policy, Number: c.number, Content: row.Contents[by.Direction][c.number-1]}
			}
		}
		if by.By != shown || slices.Contains([]string{by.By.Content, shown.Content}, "") != (c.policy == "") {
			t.Errorf("%s to %s: the node counts %+v, and show finds %+v", c.from, c.to, by.By, shown)
		}
	}
}
