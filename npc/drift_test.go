package npc

import (
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/iptables"
)

// TestARuleThatKeepsItsIDIsNotTakenForOurs: somebody lets a rule of ours return.
func TestARuleThatKeepsItsIDIsNotTakenForOurs(t *testing.T) {
	m := New(Config{NodeName: "n", Hook: HookForward, Gate: GateAuto})
	m.SetSynced()
	m.Adopt(IPv4, nil, iptables.Seen{})
	m.Plan(false)
	seen := iptables.Seen{Chains: map[string]iptables.SeenChain{}}
	for name, c := range m.tables[IPv4].chains {
		seen.Chains[name] = iptables.SeenChain{IDs: c.have, Text: slices.Repeat([]string{"a rule"}, len(c.have))}
	}
	name := dropChain(Ingress)
	find := func() bool {
		return slices.ContainsFunc(m.chainDrift(IPv4, seen), func(d string) bool { return strings.Contains(d, name) })
	}
	for range 2 { // what is printed is known from the second time on
		if find() {
			t.Fatal("what we wrote is taken for drift")
		}
	}
	c := seen.Chains[name]
	c.Text = append(slices.Clone(c.Text[:len(c.Text)-1]), "another rule")
	seen.Chains[name] = c
	if !find() {
		t.Error("the changed rule is not found")
	}
	m.Adopt(IPv4, nil, seen)
	if !slices.ContainsFunc(m.Plan(false)[IPv4].Rules.Replace, func(c iptables.Chain) bool { return c.Name == name }) {
		t.Error("the chain is not written anew")
	}
}
