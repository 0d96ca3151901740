package found_test

import (
	"slices"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/internal/found"
)

// TestOnlyWhatPacketsComeToAsks: remaining rules of lists and of shards of namespaces do not count.
func TestOnlyWhatPacketsComeToAsks(t *testing.T) {
	const list, tier, node, shard = "WEAVE-NPC-A-bqttng5lcosm6fwc", "WEAVE-NPC-ADMIN-EGRESS", "WEAVE-NPC-I-01", "WEAVE-NPC-I-rb5cgaguxlovvosy"
	chains := func(main ...string) map[string][]string {
		return map[string][]string{
			"WEAVE-NPC-EGRESS":  main,
			tier:                {"-A " + tier + " -m set --match-set weave-listed src -g " + list},
			list:                {"-A " + list + " -m set --match-set weave-peers dst -j RETURN"},
			"WEAVE-NPC-INGRESS": {"-A WEAVE-NPC-INGRESS -m set --match-set weave-branch dst -g " + node},
			node:                {"-A " + node + " -m set --match-set weave-pods dst -g " + shard},
			shard:               {"-A " + shard + " -m set --match-set weave-allowed src -j ACCEPT"},
			"WEAVE-NPC-I-1":     {"-A WEAVE-NPC-I-1 -m set --match-set weave-left dst -g " + shard},
		}
	}
	always := []string{"weave-allowed", "weave-branch", "weave-pods"}
	for _, c := range []struct {
		name string
		main []string
		also []string
	}{
		{"nothing leads to the list", nil, nil},
		{"the list is led to", []string{"-A WEAVE-NPC-EGRESS -m set --match-set weave-admin-egress src -m comment --comment \"x y\" -g " + tier},
			[]string{"weave-admin-egress", "weave-listed", "weave-peers"}},
	} {
		var asked []string
		for set, is := range found.UsesOf(npc.IPv4, chains(c.main...)).Asked {
			if is {
				asked = append(asked, set)
			}
		}
		slices.Sort(asked)
		want := slices.Sorted(slices.Values(append(c.also, always...)))
		if !slices.Equal(asked, want) {
			t.Errorf("%s: %q are asked, not %q", c.name, asked, want)
		}
	}
}
