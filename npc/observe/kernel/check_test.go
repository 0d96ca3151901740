package kernel

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/test/fixture"
)

// TestWhoseKernel shows when the state of a kernel is refused.
func TestWhoseKernel(t *testing.T) {
	all := cluster.New()
	for _, facts := range []string{"shop/a node1 10.32.1.0", "shop/b node1 10.32.1.1", "shop/c node2 10.32.1.2"} {
		all.SetPod(fixture.Pod(facts))
	}
	local := func(name string, addrs ...string) ipset.Listing {
		l := ipset.Listing{}
		l.Name = name
		for _, a := range addrs {
			l.Members = append(l.Members, ipset.Element{Entry: ipset.Addr(netip.MustParseAddr(a))})
		}
		return l
	}
	chains := func(names ...string) map[npc.Family]iptables.Seen {
		seen := iptables.Seen{Chains: map[string]iptables.SeenChain{}}
		for _, name := range names {
			seen.Chains[name] = iptables.SeenChain{}
		}
		return map[npc.Family]iptables.Seen{npc.IPv4: seen, npc.IPv6: {}}
	}
	own := chains("WEAVE-NPC", "WEAVE-NPC-LAYOUT-1")
	for _, c := range []struct {
		name, node string
		state      State
		want       string
	}{
		{"its_own", "node1", State{tables: own, sets: []ipset.Listing{local("weave-local-pods", "10.32.1.0", "10.32.1.1")}}, ""},
		{"with_an_address_that_was_missed", "node1", State{tables: own, sets: []ipset.Listing{local("weave-local-pods", "10.32.1.9", "10.32.1.1")}}, ""},
		{"a_node_without_pods", "node3", State{tables: own, sets: []ipset.Listing{local("weave-local-pods")}}, ""},
		{"objects_that_cannot_be_read", "node9", State{tables: own}, ""},
		{"another_nodes", "node2", State{tables: own, sets: []ipset.Listing{local("weave-local-pods", "10.32.1.0", "10.32.1.1")}},
			`the pods of this node are those of node1, and not of "node2"`},
		{"a_name_that_no_node_has", "nodee1", State{tables: own, sets: []ipset.Listing{local("weave-local-pods", "10.32.9.9")}},
			`none of the 0 of pods on node "nodee1"; did you mean node1?`},
		{"no_pod_of_the_node", "node1", State{tables: own, sets: []ipset.Listing{local("weave-local-pods")}}, `has 0 addresses, and none of the 2`},
		{"nothing", "node1", State{tables: chains()}, "weave-npc does not run here"},
		{"sets_alone", "node1", State{tables: chains(), sets: []ipset.Listing{local("weave-local-pods", "10.32.1.0")}}, "or --iptables-backend is another one"},
		{"the_originals", "node1", State{tables: chains("WEAVE-NPC", "WEAVE-NPC-DEFAULT")}, "they may be the original's"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "objects_that_cannot_be_read" {
				c.state.purpose.Cluster = all
			}
			err := c.state.Check(c.node)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, not %q", err, c.want)
			}
		})
	}
}
