package dataplane_test

import (
	"net/netip"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/conntrack"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// pods are those that the owners of addresses have.
type pods map[netip.Addr]dataplane.Pod

func (p pods) owner(a netip.Addr) (dataplane.Pod, bool) {
	pod, ok := p[a]
	return pod, ok
}

// heldNode returns a node that was restarted, with a kernel that has the policy and a peer, before it reads the policy.
func heldNode(t *testing.T, known pods) *node {
	t.Helper()
	former := newNode(t)
	former.peers.Add(ipset.Addr(client), ipset.Attr{Comment: "shop/client"})
	former.carryOut()
	n := bareNode(t, former.kernel)
	for _, free := range n.free {
		free.Add(ipset.Addr(web), ipset.Attr{Comment: "shop/web"})
	}
	n.Hold(known.owner, n.free)
	if !n.Holding() {
		t.Fatal("nothing is held")
	}
	return n
}

var bothPods = pods{web: {Comment: "shop/web", LocalComment: "id shop/web", Local: true}, client: {Comment: "shop/client"}}

// TestHoldKeepsWhatNoObjectAccountsFor until what asks for it is read, or nothing is missing.
func TestHoldKeepsWhatNoObjectAccountsFor(t *testing.T) {
	kept := []string{"+" + fromPeers, "+-g " + shopChain}
	kernel := func(n *node) string { return n.kernel.Chains[shopChain][0] + n.kernel.Chains[naming.IngressChain][0] }

	t.Run("nothing_is_read", func(t *testing.T) {
		n := heldNode(t, bothPods)
		n.expect(n.Plan(dataplane.Options{CollectGarbage: true}).String(), "-"+shopPods, "-"+peersName, "-"+shopChain, "-weave-default-allow")
		n.carryOutWith(dataplane.Options{CollectGarbage: true})
		n.expect(kernel(n), kept...)
		if n.HoldsIsolated(web) != [2]bool{true, true} || n.HoldsIsolated(client) != [2]bool{} || n.HoldsPods() {
			t.Error("it is not known who is isolated")
		}
		n.Release()
		if n.Holding() || n.HoldsIsolated(web) != [2]bool{} {
			t.Error("something is held")
		}
		n.carryOut()
		n.collectGarbage()
		if n.kernel.Sets[shopPods] != nil || n.kernel.Sets[peersName] != nil || n.kernel.Chains[shopChain] != nil {
			t.Error("what is not wanted is left")
		}
		n.reconciled()
	})
	t.Run("the_policy_is_read", func(t *testing.T) {
		n := heldNode(t, bothPods)
		n.carryOut()
		n.addPolicy()
		n.peers.Add(ipset.Addr(client), ipset.Attr{Comment: "shop/client"})
		n.expect(n.Plan(dataplane.Options{}).String(), "-"+shopPods, "-"+shopChain)
		n.carryOut()
		n.rules.Disown(n.policy, fromPeers) // it was the policy's from then on
		n.expect(n.carryOut().String(), "+"+shopChain, "-"+fromPeers)
	})
	t.Run("the_policy_is_read_and_goes", func(t *testing.T) {
		n := heldNode(t, bothPods)
		n.addPolicy()
		n.carryOut()
		n.dropPolicy()
		n.carryOut()
		n.expect(n.kernel.Chains[naming.IngressChain][0], "+-g "+shopChain) // others may need it
		if s := n.kernel.Sets[shopPods]; s == nil || len(s.Members) != 1 {
			t.Errorf("the set by which packets are led: %v", s)
		}
	})
	t.Run("an_address_is_anothers", func(t *testing.T) {
		n := heldNode(t, bothPods)
		n.carryOut()
		n.Reassign(ipset.Addr(client), false) // the pod was read, and it is the same
		n.expect(n.Plan(dataplane.Options{}).String(), "-"+peersName)
		n.Reassign(ipset.Addr(client), true)
		n.Reassign(ipset.Addr(web), true)
		n.expect(n.Plan(dataplane.Options{}).String(), "+del "+peersName+" 10.32.1.3", "+del "+shopPods+" 10.32.1.2",
			"+add weave-default-allow-ingress 10.32.1.2", "+add weave-default-allow-egress 10.32.1.2")
	})
	t.Run("an_address_was_anothers_before", func(t *testing.T) {
		n := heldNode(t, pods{web: {Comment: "shop/next", LocalComment: "id shop/next", Local: true}, client: {Comment: "shop/next"}})
		n.expect(n.Plan(dataplane.Options{}).String(), "+del "+peersName+" 10.32.1.3", "+del "+shopPods+" 10.32.1.2")
	})
	t.Run("a_pod_is_not_read", func(t *testing.T) {
		former := newNode(t)
		former.Local.Add(ipset.Addr(client), ipset.Attr{Comment: "id shop/client"})
		former.carryOut()
		n := bareNode(t, former.kernel)
		n.Hold(pods{}.owner, n.free)
		n.expect(n.Plan(dataplane.Options{}).String(), "-weave-local-pods")
		if !n.HoldsPods() {
			t.Error("it is not known that a pod stays")
		}
		n.Reassign(ipset.Addr(client), true)
		n.expect(n.Plan(dataplane.Options{}).String(), "+del weave-local-pods 10.32.1.3")
	})
	t.Run("a_pod_is_isolated_again", func(t *testing.T) {
		former := bareNode(t, newNode(t).kernel)
		former.free[npc.Egress].Add(ipset.Addr(web), ipset.Attr{Comment: "shop/web"})
		former.carryOut()
		n := bareNode(t, former.kernel)
		n.Hold(bothPods.owner, n.free)
		n.expect(n.Plan(dataplane.Options{}).String(), "+del weave-default-allow-egress 10.32.1.2")
	})
	t.Run("it_stays_where_it_was_led", func(t *testing.T) {
		n := heldNode(t, bothPods)
		c := n.Chains.AddShard(naming.ShardChain(npc.Ingress, "other", ""), "other", "what policies of other allow", base, npc.Ingress)
		s := n.Sets.Add(naming.ShardSet(npc.IPv4, npc.Ingress, "other", ""), ipset.HashIP, "isolated pods of other")
		s.Dispatch(c, npc.Ingress, 0)
		s.Add(ipset.Addr(web), ipset.Attr{Comment: "shop/web"})
		n.expect(n.Plan(dataplane.Options{}).String(), "+create "+s.Name, "-add "+s.Name)
	})
}

// TestHoldOfPortsAndLists finds what stays by addresses with ports, and by the lists that name sets.
func TestHoldOfPortsAndLists(t *testing.T) {
	list, ports := naming.Set(npc.IPv4, "list"), naming.Set(npc.IPv4, "ports")
	http := ipset.AddrPort(client, 6, 80)
	former := newNode(t)
	former.Sets.Add(list, ipset.ListSet, "two peers").Add(ipset.Member(peersName), ipset.Attr{Comment: "shop"})
	former.Sets.Add(ports, ipset.HashIPPort, "ports").Add(http, ipset.Attr{Comment: "shop/client"})
	former.rules.Own(former.policy, naming.Match(list, "src"), 2)
	former.rules.Own(former.policy, naming.Match(ports, "dst,dst"), 3)
	former.carryOut()
	n := bareNode(t, former.kernel)
	n.Hold(pods{client: {Comment: "shop/client"}}.owner, n.free)
	n.expect(n.Plan(dataplane.Options{CollectGarbage: true}).String(), "-"+list, "-"+ports)
	s := n.Sets.Add(ports, ipset.HashIPPort, "ports")
	s.Add(http, ipset.Attr{Comment: "shop/client"})
	s.Drop() // rules that stay refer to it
	n.expect(n.Plan(dataplane.Options{CollectGarbage: true}).String(), "-"+ports)
	n.Reassign(ipset.Addr(client), true)
	n.expect(n.Plan(dataplane.Options{}).String(), "+del "+ports+" 10.32.1.3,tcp:80")
	s = n.Sets.Add(ports, ipset.HashIPPort, "ports")
	n.Flows.Enter(conntrack.Request{Addr: client})
	s.Drop() // the address is another pod's now
	n.expect(n.Plan(dataplane.Options{}).String(), "+del "+ports+" 10.32.1.3,tcp:80")
}
