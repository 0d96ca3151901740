package dataplane_test

import (
	"net/netip"
	"testing"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/rules"
	"github.com/weave-npc/weave-npc/npc/traffic"
	"github.com/weave-npc/weave-npc/test/paper"
)

var (
	web, client = netip.MustParseAddr("10.32.1.2"), netip.MustParseAddr("10.32.1.3")
	base        = &rules.Base{PodInterface: "cni0", Hooked: true, AllowAction: "ACCEPT", NFLogGroup: 86}
)

// node is a table with a kernel on paper: a pod, web, whose policy p allows what comes from a set of peers.
type node struct {
	*testing.T
	*dataplane.Table
	kernel       *paper.Kernel
	peers, shard *dataplane.Set
	rules        *dataplane.Chain
	root         *dataplane.Chain
	policy       *dataplane.Owner
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{T: t, Table: dataplane.NewTables()[traffic.IPv4], kernel: paper.New()[traffic.IPv4],
		policy: &dataplane.Owner{Namespace: "shop", Name: "p", UID: "p"}}
	n.root = n.Chains.AddBase(base)[traffic.Ingress]
	n.Activate()
	for _, name := range []string{"default-allow-ingress", "default-allow-egress", "gate-ingress", "gate-egress", "broadcast", "pod-range"} {
		typ := ipset.HashNet
		if name[0] == 'd' {
			typ = ipset.HashIP
		}
		n.Sets.AddFixed(name, typ, name)
	}
	n.Local.Add(ipset.Addr(web), ipset.Attr{Comment: "id shop/web"})
	n.peers = n.Sets.Add("weave-peers", ipset.HashIP, "pods with role=client")
	n.rules = n.Chains.AddShard("WEAVE-NPC-I-shop", "shop", "what policies of shop allow", base, traffic.Ingress)
	n.shard = n.Sets.Add("weave-shop", ipset.HashIP, "isolated pods of shop")
	n.shard.Dispatch(n.rules, traffic.Ingress, 0)
	n.shard.Add(ipset.Addr(web), ipset.Attr{Comment: "shop/web"})
	n.rules.Own(n.policy, "-m set --match-set weave-peers src", 1)
	n.root.SetRules(map[string]dataplane.Rule{"-m set --match-set weave-shop dst": {Target: "-g WEAVE-NPC-I-shop", About: "isolated pods of shop"}})
	n.load()
	return n
}

// load has the table take over what the kernel has.
func (n *node) load() {
	sets, seen := n.kernel.Read()
	n.LoadChains(seen)
	n.LoadSets(sets)
}

// carryOut plans, applies and commits. It returns the transaction.
func (n *node) carryOut() dataplane.Transaction {
	n.Helper()
	tx := n.Plan(dataplane.Options{})
	if err := n.kernel.Apply(tx); err != nil {
		n.Fatal(err)
	}
	n.Commit(tx, tx.Taken())
	return tx
}

// settled fails if a plan finds something to do.
func (n *node) settled() {
	n.Helper()
	if tx := n.Plan(dataplane.Options{}); !tx.Empty() {
		n.Errorf("there is something to do:\n%s", tx)
	}
}

// without returns a transaction's rules without those that a function chooses, as the kernel takes them if it rejects these.
func without(tx dataplane.Transaction, rejected func(iptables.Rule) bool) (u iptables.Update, ids map[string]string) {
	ids = map[string]string{}
	for _, c := range tx.Rules.Replace {
		for _, r := range c.Rules {
			if rejected(r) {
				ids[r.ID()] = "no such match"
			}
		}
	}
	return tx.Rules, ids
}
