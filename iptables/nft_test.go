package iptables

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weave-npc/weave-npc/test/sandbox"
)

// nativeRules are rules of nft's that iptables 1.8.9 cannot show, and whether they may accept.
var nativeExamples = map[string]bool{
	"meta l4proto tcp tcp option maxseg size set rt mtu":          false,
	"ct state vmap { established : accept, invalid : drop }":      true,
	"fib daddr type local counter accept":                         true,
	"fib daddr type local counter drop":                           false,
	"fib daddr type local counter jump FOREIGN comment \"hello\"": true,
}

// TestATableWithRulesOfNFT: weave-npc's rules are read and moved alongside rules that iptables cannot show.
func TestATableWithRulesOfNFT(t *testing.T) {
	for _, family := range []Family{IPv4, IPv6} {
		for example, accepts := range nativeExamples {
			t.Run(family.String()+" "+example, func(t *testing.T) {
				sandbox.Thread(t)
				table, err := New(family, NFT)
				if err != nil {
					t.Fatal(err)
				}
				jump := Jump{Chain: "FORWARD", Rule: Rule{Target: "-j WEAVE-NPC-FORWARD", Comment: "ours"}}
				table.restore(t, "*filter\n:FOREIGN - [0:0]\n-A FOREIGN -p udp -j ACCEPT\nCOMMIT\n")
				table.apply(t, Update{Replace: []Chain{{Name: "WEAVE-NPC-FORWARD", Tail: []Rule{{Target: "-g WEAVE-NPC"}}},
					{Name: "WEAVE-NPC", Rules: []Rule{{Match: "-p udp", Target: "-j ACCEPT"}}}}, Jumps: []Jump{jump}})
				before := table.read(t)
				nft := map[Family]string{IPv4: "ip", IPv6: "ip6"}[family]
				command(t, "nft", append([]string{"insert", "rule", nft, "filter", "FORWARD"}, strings.Fields(example)...)...)

				seen := table.read(t)
				if !seen.Native {
					t.Error("it is not said that there are rules of nft's")
				}
				if diff := cmp.Diff(before.Chains, seen.Chains, cmpopts.IgnoreFields(SeenChain{}, "Packets")); diff != "" {
					t.Errorf("our chains: %s", diff)
				}
				hooks := seen.Hooks["FORWARD"]
				if len(hooks) != 2 || RuleID(hooks[1]) != jump.Rule.ID() || seen.Accepts(hooks[0]) != accepts {
					t.Fatalf("FORWARD is %q, which accepts: %t", hooks, seen.Accepts(hooks[0]))
				}
				jump.Stale = hooks[1:]
				table.apply(t, Update{Jumps: []Jump{jump}, Replace: []Chain{{Name: "WEAVE-NPC", Tail: []Rule{{Target: "-j DROP"}}}}})
				hooks = table.read(t).Hooks["FORWARD"]
				if len(hooks) != 2 || RuleID(hooks[0]) != jump.Rule.ID() {
					t.Errorf("FORWARD is %q", hooks)
				}

				command(t, "nft", append([]string{"insert", "rule", nft, "filter", "WEAVE-NPC"}, strings.Fields(example)...)...)
				if got := table.read(t).Chains["WEAVE-NPC"]; len(got.IDs) == 1 && got.IDs[0] == (Rule{Target: "-j DROP"}).ID() {
					t.Error("a rule in a chain of ours is not seen")
				}
				table.apply(t, Update{Replace: []Chain{{Name: "WEAVE-NPC", Tail: []Rule{{Target: "-j DROP"}}}}})
				if got := table.read(t).Chains["WEAVE-NPC"]; len(got.IDs) != 1 || got.IDs[0] != (Rule{Target: "-j DROP"}).ID() {
					t.Errorf("our chain is %v", got)
				}
			})
		}
	}
}
