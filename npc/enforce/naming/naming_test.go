package naming

import (
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/npc"
)

// TestSetNames distinguishes weave-npc's sets, those of Weave Net's npc, and foreign ones.
func TestSetNames(t *testing.T) {
	for name, want := range map[string][2]bool{
		Set(npc.IPv4, "x"):                 {true, true},
		"weave-local-pods":                 {true, false},
		"weave-local-pods-v6":              {true, false},
		"weave-fail-closed-egress-v6":      {true, false},
		"weave-default-allow-ingress":      {true, false},
		"weave-;rGqyMIl1HN^cfDki~Z$3]6!N":  {false, true},
		"weave-foo":                        {false, false},
		"weave-a-foreign-set-of-31-bytes":  {false, false},
		"KUBE-SOMETHING":                   {false, false},
		"weave-local-pods-of-another":      {false, false},
		"other-;rGqyMIl1HN^cfDki~Z$3]6!N":  {false, false},
		"weave-" + strings.Repeat("A", 26): {false, false},
	} {
		if got := [2]bool{IsOurSet(name), IsAncestorSet(name)}; got != want {
			t.Errorf("%s: ours, the original's: %v, want %v", name, got, want)
		}
	}
	if len(Set(npc.IPv4, "a", "b")) != 31 || Set(npc.IPv4, "a", "b") == Set(npc.IPv6, "a", "b") || Set(npc.IPv4, "a", "b") == Set(npc.IPv4, "ab") {
		t.Error("names are of another length, or collide")
	}
}

// TestNamesInTheKernel: operators, dashboards and the next release rely on these names.
func TestNamesInTheKernel(t *testing.T) {
	for want, got := range map[string]string{
		"weave-local-pods":                        FixedSet(npc.IPv4, LocalPods),
		"weave-fail-closed-egress-v6":             FixedSet(npc.IPv6, FailClosed(npc.Egress)),
		"weave-default-allow-ingress":             FixedSet(npc.IPv4, DefaultAllow(npc.Ingress)),
		"WEAVE-NPC-I-abc":                         NodeChain(npc.Ingress, "abc"),
		"WEAVE-NPC-E-abc":                         NodeChain(npc.Egress, "abc"),
		"WEAVE-NPC-INGRESS":                       IsolatedChain(npc.Ingress),
		"WEAVE-NPC-EGRESS-CUSTOM":                 IsolatedChain(npc.Egress),
		"WEAVE-NPC-DROP-INGRESS":                  DropChain(npc.Ingress),
		"WEAVE-NPC-DROP-EGRESS":                   DropChain(npc.Egress),
		"WEAVE-NPC-INPUT":                         InputChain,
		"WEAVE-NPC-REPLIES":                       RepliesChain(npc.Ingress),
		"WEAVE-NPC-EGRESS-REPLIES":                RepliesChain(npc.Egress),
		"-m set --match-set weave-local-pods src": Match("weave-local-pods", "src"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	names := map[string]string{}
	for _, d := range npc.Directions {
		for _, namespace := range []string{"default", "default1"} {
			for _, digits := range []string{"", "1", "11"} {
				about := d.String() + " " + namespace + " " + digits
				chain, set := ShardChain(d, namespace, digits), ShardSet(npc.IPv4, d, namespace, digits)
				if len(chain) > 28 || !strings.HasPrefix(chain, ChainPrefix) || !IsOurSet(set) || names[chain]+names[set] != "" {
					t.Errorf("%s: chain %s and set %s are invalid, or those of %s%s", about, chain, set, names[chain], names[set])
				}
				names[chain], names[set] = about, about
			}
		}
	}
	if got := ShardChain(npc.Ingress, "default", ""); got != "WEAVE-NPC-I-kqrcfo3xsfmfuprf" {
		t.Errorf("the chain of namespace default is %s", got)
	}
	if got := ShardSet(npc.IPv4, npc.Ingress, "default", ""); got != "weave-jrgpjwtyiolsh2pogbju7r2w7" {
		t.Errorf("the set of namespace default is %s", got)
	}
}
