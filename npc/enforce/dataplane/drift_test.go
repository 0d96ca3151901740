package dataplane_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/test/paper"
)

// TestARuleThatKeepsItsIDIsNotTakenForOurs: another process changes a rule of ours to return.
func TestARuleThatKeepsItsIDIsNotTakenForOurs(t *testing.T) {
	n := newNode(t)
	n.carryOut()
	_, seen := n.kernel.Read()
	name := naming.DropChain(npc.Ingress)
	find := func() bool {
		return slices.ContainsFunc(n.Chains.Drift(seen), func(d string) bool { return strings.Contains(d, name) })
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
	n.LoadChains(seen)
	if !slices.ContainsFunc(n.Plan(dataplane.Options{}).Rules.Replace, func(c iptables.Chain) bool { return c.Name == name }) {
		t.Error("the chain is not rewritten")
	}
}

// TestDriftIsFound: what others can do to what is ours, and what is said of it.
func TestDriftIsFound(t *testing.T) {
	local := func(sets []ipset.Listing) *ipset.Listing {
		return &sets[slices.IndexFunc(sets, func(l ipset.Listing) bool { return l.Name == "weave-local-pods" })]
	}
	other := ipset.Addr(netip.MustParseAddr("10.32.1.99"))
	for name, c := range map[string]struct {
		sets   func(sets []ipset.Listing) []ipset.Listing
		chains func(seen iptables.Seen)
		want   string
		// deep is set if it takes a look at the members.
		deep bool
	}{
		"nothing": {},
		"a set is gone": {sets: func(sets []ipset.Listing) []ipset.Listing {
			return slices.DeleteFunc(sets, func(l ipset.Listing) bool { return l.Name == "weave-local-pods" })
		}, want: "set weave-local-pods (local pods) is gone"},
		"a set is empty": {sets: func(sets []ipset.Listing) []ipset.Listing {
			l := local(sets)
			l.Members, l.Elements = nil, 0
			return sets
		}, want: "set weave-local-pods (local pods) has 0 members, not 1"},
		"a set has one more": {sets: func(sets []ipset.Listing) []ipset.Listing {
			l := local(sets)
			l.Members, l.Elements = append(l.Members, ipset.Element{Entry: other}), 2
			return sets
		}, want: "set weave-local-pods (local pods) has 2 members, not 1"},
		"a member is another": {sets: func(sets []ipset.Listing) []ipset.Listing {
			local(sets).Members[0].Entry = other
			return sets
		}, want: "set weave-local-pods (local pods) has 10.32.1.99", deep: true},
		"a comment is another": {sets: func(sets []ipset.Listing) []ipset.Listing {
			local(sets).Members[0].Comment = "x"
			return sets
		}, want: "set weave-local-pods (local pods) has 10.32.1.2", deep: true},
		"a chain is gone": {chains: func(seen iptables.Seen) { delete(seen.Chains, naming.IngressChain) },
			want: "chain WEAVE-NPC-INGRESS (the way to the rules of isolated pods, ingress) is gone"},
		"a chain is empty": {chains: func(seen iptables.Seen) { seen.Chains[naming.IngressChain] = iptables.SeenChain{} },
			want: "chain WEAVE-NPC-INGRESS (the way to the rules of isolated pods, ingress) has other rules"},
		"our jump is gone": {chains: func(seen iptables.Seen) { seen.Hooks[naming.HookChain] = seen.Hooks[naming.HookChain][1:] },
			want: "FORWARD has 0 jumps to WEAVE-NPC-FORWARD"},
		"our jump is there twice": {chains: func(seen iptables.Seen) {
			seen.Hooks[naming.HookChain] = append(seen.Hooks[naming.HookChain], seen.Hooks[naming.HookChain][0])
		}, want: "FORWARD has 2 jumps to WEAVE-NPC-FORWARD"},
		"a rule above ours accepts": {chains: func(seen iptables.Seen) {
			seen.Hooks[naming.HookChain] = append([]string{"-A FORWARD -p udp -j ACCEPT"}, seen.Hooks[naming.HookChain]...)
		}, want: "FORWARD accepts before us: -A FORWARD -p udp -j ACCEPT"},
		"a rule above ours drops": {chains: func(seen iptables.Seen) {
			seen.Hooks[naming.HookChain] = append([]string{"-A FORWARD -p udp -j DROP"}, seen.Hooks[naming.HookChain]...)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.carryOut()
			sets, seen := n.kernel.Read()
			seen.Hooks[naming.HookChain] = append(seen.Hooks[naming.HookChain], "-A FORWARD -j DROP")
			if c.sets != nil {
				sets = c.sets(sets)
			}
			if c.chains != nil {
				c.chains(seen)
			}
			quick := append(n.Sets.Drift(headers(sets)), n.Chains.Drift(seen)...)
			found := append(n.Sets.MemberDrift(sets), quick...)
			if c.deep == (len(quick) > 0) && c.want != "" || c.want == "" && len(found) > 0 ||
				c.want != "" && (len(found) != 1 || !strings.HasPrefix(found[0], c.want)) {
				t.Errorf("found by headers: %q, by members: %q; want %q", quick, found, c.want)
			}
		})
	}
}

// TestWhatIsMetIsCounted: the packets of the rule that matched most are those that were dropped.
func TestWhatIsMetIsCounted(t *testing.T) {
	n := newNode(t)
	n.carryOut()
	_, seen := n.kernel.Read()
	c := seen.Chains[naming.DropChain(npc.Egress)]
	c.Packets = []uint64{3, 7, 5}
	seen.Chains[naming.DropChain(npc.Egress)] = c
	if drift := n.Chains.Drift(seen); len(drift) > 0 || n.Chains.Dropped(npc.Egress) != 7 || n.Chains.Dropped(npc.Ingress) != 0 {
		t.Errorf("%d dropped; drift: %q", n.Chains.Dropped(npc.Egress), drift)
	}
}

// TestWithoutAHook: where the CNI plugin jumps to the chains, FORWARD is not checked.
func TestWithoutAHook(t *testing.T) {
	n := dataplane.NewTables()[npc.IPv4]
	n.Chains.AddBase(&rules.Base{PodInterface: "weave", AllowAction: "ACCEPT"})
	n.LoadChains(iptables.Seen{})
	if tx := n.Plan(dataplane.Options{}); len(tx.Rules.Jumps) > 0 {
		t.Errorf("planned: %v", tx.Rules.Jumps)
	}
	if drift := n.Chains.Drift(iptables.Seen{}); len(drift) > 0 {
		t.Errorf("drift: %q", drift)
	}
}

// TestTheFormerJumpGoes: INPUT had another rule before there was a chain for what pods send to the node.
func TestTheFormerJumpGoes(t *testing.T) {
	kernel := paper.New()[npc.IPv4]
	former := rules.FormerToNode(npc.IPv4)
	n := bareNode(t, kernel)
	n.carryOut()
	kernel.Chains[naming.NodeHookChain] = []string{former.String()}
	n.load()
	n.carryOut()
	if left := kernel.Chains[naming.NodeHookChain]; len(left) > 0 {
		t.Errorf("INPUT has %q", left)
	}
	n.reconciled()
}

// TestS115_WhatExpiresIsNoDrift: a set is made with its elements, and is left to the goroutine that renews them after
// that, also if it is found empty.
func TestS115_WhatExpiresIsNoDrift(t *testing.T) {
	n := newNode(t)
	name := naming.FixedSet(npc.IPv4, naming.Alive)
	half := ipset.Net(netip.MustParsePrefix("0.0.0.0/1"))
	n.addExpiring(5, ipset.Element{Entry: half})
	n.carryOut()
	alive := n.kernel.Sets[name]
	if alive == nil || len(alive.Members) != 1 || alive.Timeout != 5 {
		t.Fatalf("it is made as %+v", alive)
	}
	clear(alive.Members)
	for range 2 {
		sets, seen := n.kernel.Read()
		if drift := append(n.Sets.Drift(headers(sets)), n.Sets.MemberDrift(sets)...); len(drift) > 0 {
			t.Errorf("drift: %q", drift)
		}
		n.LoadSets(sets)
		n.LoadChains(seen)
		if tx := n.Plan(dataplane.Options{}); !tx.Empty() {
			t.Errorf("planned:\n%s", tx)
		}
		alive.Members[ipset.Net(netip.MustParsePrefix("10.0.0.0/8"))] = ipset.Attr{}
	}
	alive.Timeout = 9
	sets, _ := n.kernel.Read()
	if drift := n.Sets.Drift(headers(sets)); len(drift) != 1 || !strings.Contains(drift[0], "timeout of 9 s") {
		t.Errorf("another timeout: %q", drift)
	}
}

// headers returns the headers of sets.
func headers(sets []ipset.Listing) (out []ipset.Header) {
	for _, l := range sets {
		out = append(out, l.Header)
	}
	return out
}
