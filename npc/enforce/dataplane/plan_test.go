package dataplane_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/test/paper"
)

// TestPlanStart takes nothing away: it makes the base on a new node, and closes the fail-closed filters where chains
// stand.
func TestPlanStart(t *testing.T) {
	everything := ipset.Net(netip.MustParsePrefix("10.32.1.0/24"))
	closed := func(n *node) {
		for _, g := range n.failClosedSets {
			g.Add(everything, ipset.Attr{Comment: "not all is read"})
		}
	}
	t.Run("a_new_node", func(t *testing.T) {
		n := bareNode(t, paper.New()[npc.IPv4])
		closed(n)
		n.expect(n.PlanStart(true, dataplane.NothingKnown, n.failClosedSets).String(), "-e")
		n.expect(n.PlanStart(false, dataplane.AllKnown, n.failClosedSets).String(), "-e")
		tx := n.PlanStart(true, dataplane.AllKnown, n.failClosedSets)
		n.expect(tx.String(), "+create weave-fail-closed-ingress", "+add weave-fail-closed-ingress 10.32.1.0/24", "+:WEAVE-NPC - ", "+-I FORWARD 1")
		if err := n.kernel.Apply(tx); err != nil {
			t.Fatal(err)
		}
		n.Commit(tx, tx.Taken())
		n.reconciled()
	})
	t.Run("chains_stand", func(t *testing.T) {
		former := newNode(t)
		former.carryOut()
		n := bareNode(t, former.kernel)
		closed(n)
		tx := n.PlanStart(true, dataplane.AllKnown, n.failClosedSets)
		n.expect(tx.String(), "+add weave-fail-closed-ingress 10.32.1.0/24", "+add weave-fail-closed-egress 10.32.1.0/24", "-del ", "-# IPv4: rules", "-create weave", "-:WEAVE")
		if !tx.OnlyMembers() || tx.Empty() {
			t.Errorf("there is more than members:\n%s", tx)
		}
	})
}

// TestWhatIsKnownIsPlanned: while it is not known which chains there are, what rules may need is kept.
func TestWhatIsKnownIsPlanned(t *testing.T) {
	n := newNode(t)
	n.carryOut()
	n.peers.Add(ipset.Addr(client), ipset.Attr{Comment: "shop/client"})
	n.shard.Remove(ipset.Addr(web))
	n.expect(n.Plan(dataplane.Options{Known: dataplane.NothingKnown}).String(), "- ")
	text := n.Plan(dataplane.Options{Known: dataplane.SetsKnown}).String()
	n.expect(text, "+add "+peersName+" 10.32.1.3", "-del "+shopPods)
	n.Local.Remove(ipset.Addr(web))
	n.peers.Drop()
	text = n.Plan(dataplane.Options{Known: dataplane.SetsKnown}).String()
	n.expect(text, "+del "+shopPods+" 10.32.1.2", "-"+peersName)
}

// TestAFamilyThatIsNotActive has what every node has, and nothing else.
func TestAFamilyThatIsNotActive(t *testing.T) {
	n := dataplane.NewTables()[npc.IPv6]
	n.Chains.AddBase(base)
	list, other := naming.Set(npc.IPv6, "list"), naming.Set(npc.IPv6, "other")
	n.LoadSets([]ipset.Listing{ // a list that has one member, and is to have another
		{Header: ipset.Header{Set: ipset.Set{Name: other, Type: ipset.HashIP, Family: ipset.IPv6}}},
		{Header: ipset.Header{Set: ipset.Set{Name: list, Type: ipset.ListSet}}, Members: []ipset.Element{{Entry: ipset.Member(other)}}},
	})
	c := n.Chains.AddShard(shopChain, "shop", "what policies of shop allow", base, npc.Ingress)
	c.Own(&dataplane.Owner{Namespace: "shop", Name: "p"}, "-p tcp", 1)
	n.Sets.Add(peersName, ipset.HashIP, "peers").Add(ipset.Addr(netip.MustParseAddr("fd32::1")), ipset.Attr{})
	n.Sets.Add(list, ipset.ListSet, "list").Add(ipset.Member(peersName), ipset.Attr{})
	text := func() string { return n.Plan(dataplane.Options{}).String() }
	check := &node{T: t}
	check.expect(text(), "+create weave-local-pods-v6", "+:WEAVE-NPC ", "-"+peersName, "-"+shopChain, "-"+list)
	n.Activate()
	n.Activate()
	check.expect(text(), "+create weave-local-pods-v6", "+:WEAVE-NPC ", "+add "+peersName+" fd32::1", "+:"+shopChain, "+add "+list)
}

// TestAnAddressThatChangedHands is closed until the connections of its former pod are deleted.
func TestAnAddressThatChangedHands(t *testing.T) {
	next := ipset.Attr{Comment: "shop/next"}
	n := newNode(t)
	n.peers.Add(ipset.Addr(client), ipset.Attr{Comment: "shop/client"})
	n.carryOut()
	n.peers.Remove(ipset.Addr(client))
	other := n.Sets.Add(naming.Set(npc.IPv4, "other"), ipset.HashIP, "other peers")
	other.Add(ipset.Addr(client), next)
	n.Local.Add(ipset.Addr(web), ipset.Attr{Comment: "id shop/next"})
	for _, a := range []netip.Addr{web, client} {
		n.Flows.Enter(conntrack.Request{Addr: a, Later: true})
	}
	if !n.Stale() {
		t.Error("there is nothing to do")
	}
	tx := n.carryOut()
	n.expect(tx.String(), "+del "+peersName+" 10.32.1.3", "+create "+other.Name, "-add "+other.Name, "-weave-local-pods", "+conntrack -D -s 10.32.1.3")
	if len(tx.DeleteStale) != 1 {
		t.Errorf("first of all: %v", tx.DeleteStale)
	}
	n.expect(n.Plan(dataplane.Options{NoPolicies: true}).String(), "+add "+other.Name+" 10.32.1.3")
	n.Flows.Remove([]netip.Addr{web, client})
	n.expect(n.carryOut().String(), "+add "+other.Name+" 10.32.1.3", "+add weave-local-pods 10.32.1.2")
	n.reconciled()
}

// TestPostponedNamespace: its rules are left as they are, and its pods where they are, or no more.
func TestPostponedNamespace(t *testing.T) {
	n := newNode(t)
	n.Postpone("shop", true)
	n.expect(n.carryOut().String(), "+:"+shopChain, "-"+fromPeers, "+create "+shopPods, "-add "+shopPods)
	n.Postpone("shop", false)
	n.expect(n.carryOut().String(), "+add "+shopPods+" 10.32.1.2", "+"+fromPeers)
	n.Postpone("shop", true)
	n.rules.Own(n.policy, "-p tcp", 2)
	n.shard.Remove(ipset.Addr(web))
	n.expect(n.Plan(dataplane.Options{}).String(), "-"+shopChain, "-"+shopPods)
}

// TestMovesFromShardToShard: a pod is found in one of them at any moment, with its rules.
func TestMovesFromShardToShard(t *testing.T) {
	n := newNode(t)
	n.carryOut()
	chain := naming.ShardChain(npc.Ingress, "shop", "1")
	c := n.Chains.AddShard(chain, "shop", "what policies of shop allow, 1", base, npc.Ingress)
	s := n.Sets.Add(naming.ShardSet(npc.IPv4, npc.Ingress, "shop", "1"), ipset.HashIP, "isolated pods of shop, 1")
	s.Dispatch(c, npc.Ingress, 0)
	branch := n.Chains.AddDispatch(naming.NodeChain(npc.Ingress, "0"), "a node", base, npc.Ingress)
	above := n.Sets.Add(naming.Set(npc.IPv4, "branch"), ipset.HashIP, "pods below")
	above.Dispatch(branch, npc.Ingress, 1)
	rules := func(set *dataplane.Set, to string) map[string]dataplane.ChainRule {
		return map[string]dataplane.ChainRule{naming.Match(set.Key(), "dst"): {Target: "-g " + to, About: set.About()}}
	}
	n.carryOut()
	// The rules that it comes to are another's, which go: it comes after them.
	c.Own(n.policy, "-p udp", 1)
	n.carryOut()
	c.Disown(n.policy, "-p udp")
	c.Disown(n.policy, "-p sctp") // it has none of these
	c.Own(n.policy, fromPeers, 1)
	n.rules.Disown(n.policy, fromPeers)
	n.shard.Remove(ipset.Addr(web))
	for _, set := range []*dataplane.Set{s, above} {
		set.Add(ipset.Addr(web), ipset.Attr{Comment: "shop/web"})
	}
	branch.SetRules(rules(s, chain))
	branch.SetRules(rules(s, chain))
	n.root.SetRules(rules(above, branch.Name()))
	tx := n.carryOut()
	if len(tx.AddAfterRestore) != 2 || tx.AddAfterRestore[0].Set.Name != s.Name || tx.AddAfterRestore[1].Set.Name != above.Name {
		t.Errorf("after the rules: %v", tx.AddAfterRestore)
	}
	n.expect(tx.String(), "-:"+shopChain)
	if !n.Unfinished() {
		t.Error("the rules that it had are gone already")
	}
	n.expect(n.carryOut().String(), "+:"+shopChain)
	if n.Unfinished() {
		t.Error("the rules that it had are not gone")
	}
	n.shard.Drop()
	n.rules.Drop()
	n.peers.Replace(map[ipset.Entry]ipset.Attr{ipset.Addr(web): {}, ipset.Addr(client): {Comment: "shop/client"}})
	n.peers.Replace(map[ipset.Entry]ipset.Attr{ipset.Addr(client): {Comment: "shop/client"}})
	n.collectGarbage()
	if len(n.kernel.Sets[peersName].Members) != 1 || n.kernel.Chains[shopChain] != nil {
		t.Errorf("the kernel has\n%s", strings.Join(n.kernel.Lines(), "\n"))
	}
}

// TestTextIsOrdered: members by their addresses, ports and names.
func TestTextIsOrdered(t *testing.T) {
	n := newNode(t)
	s := n.Sets.Add(naming.Set(npc.IPv4, "ports"), ipset.HashIPPort, "ports")
	for _, e := range []ipset.Entry{ipset.AddrPort(client, 17, 53), ipset.AddrPort(client, 6, 80), ipset.AddrPort(web, 6, 80), ipset.AddrPort(client, 6, 53)} {
		s.Add(e, ipset.Attr{})
	}
	var lines []string
	for _, line := range strings.Split(n.Plan(dataplane.Options{}).String(), "\n") {
		if member, ok := strings.CutPrefix(line, "add "+s.Name+" "); ok {
			lines = append(lines, strings.Fields(member)[0])
		}
	}
	if got, want := strings.Join(lines, " "), "10.32.1.2,tcp:80 10.32.1.3,tcp:53 10.32.1.3,tcp:80 10.32.1.3,udp:53"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
