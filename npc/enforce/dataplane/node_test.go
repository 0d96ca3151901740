package dataplane_test

import (
	"net/netip"
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

var (
	web, client = netip.MustParseAddr("10.32.1.2"), netip.MustParseAddr("10.32.1.3")
	base        = &rules.Base{PodInterface: "cni0", Hooked: true, AllowAction: "ACCEPT", NFLogGroup: 86}
	// shopChain, shopPods and peersName are the names in the kernel of a node's rules, shard and peers.
	shopChain = naming.ShardChain(npc.Ingress, "shop", "")
	shopPods  = naming.ShardSet(npc.IPv4, npc.Ingress, "shop", "")
	peersName = naming.Set(npc.IPv4, "role=client")
	fromPeers = naming.Match(peersName, "src")
)

// node is a table with a kernel in memory: a pod, web, whose policy p allows what comes from a set of peers.
type node struct {
	*testing.T
	*dataplane.Table
	kernel       *paper.Kernel
	peers, shard *dataplane.Set
	// free are the default-allow sets, and failClosedSets those of unknown addresses.
	free, failClosedSets []*dataplane.Set
	rules                *dataplane.Chain
	root                 *dataplane.Chain
	policy               *dataplane.Owner
}

// bareNode returns a node with a kernel and one pod, but no policy.
func bareNode(t *testing.T, kernel *paper.Kernel) *node {
	t.Helper()
	n := &node{T: t, Table: dataplane.NewTables()[npc.IPv4], kernel: kernel, policy: &dataplane.Owner{Namespace: "shop", Name: "p", UID: "p"}}
	n.root = n.Chains.AddBase(base)[npc.Ingress]
	n.Activate()
	for _, d := range npc.Directions {
		n.free = append(n.free, n.Sets.AddFixed(naming.DefaultAllow(d), ipset.HashIP, naming.DefaultAllow(d)))
		n.failClosedSets = append(n.failClosedSets, n.Sets.AddFixed(naming.FailClosed(d), ipset.HashNet, naming.FailClosed(d)))
	}
	n.addExpiring(naming.AliveTimeout)
	for _, name := range []string{naming.Broadcast, naming.PodRange, naming.Unattended} {
		n.Sets.AddFixed(name, ipset.HashNet, name)
	}
	n.Local.Add(ipset.Addr(web), ipset.Attr{Comment: "id shop/web"})
	n.load()
	return n
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := bareNode(t, paper.New()[npc.IPv4])
	n.addPolicy()
	return n
}

// addExpiring adds the set that shows that weave-npc runs.
func (n *node) addExpiring(seconds uint32, initial ...ipset.Element) {
	of := ipset.Set{Name: naming.FixedSet(npc.IPv4, naming.Alive), Type: ipset.HashNet, Timeout: seconds}
	dataplane.Fix(n.Sets.AddExpiring(of, naming.Alive, func() []ipset.Element { return initial }))
}

// addPolicy adds the policy, with its peers and its shard.
func (n *node) addPolicy() {
	n.peers = n.Sets.Add(peersName, ipset.HashIP, "pods with role=client")
	n.rules = n.Chains.AddShard(shopChain, "shop", "what policies of shop allow", base, npc.Ingress)
	n.shard = n.Sets.Add(shopPods, ipset.HashIP, "isolated pods of shop")
	n.shard.Dispatch(n.rules, npc.Ingress, 0)
	n.shard.Add(ipset.Addr(web), ipset.Attr{Comment: "shop/web"})
	n.rules.Own(n.policy, fromPeers, 1)
	n.root.SetRules(map[string]dataplane.ChainRule{naming.Match(n.shard.Key(), "dst"): {Target: "-g " + n.rules.Name(), About: n.shard.About()}})
}

// dropPolicy is the opposite.
func (n *node) dropPolicy() {
	n.root.SetRules(nil)
	n.rules.Disown(n.policy, fromPeers)
	n.rules.Drop()
	n.shard.Drop()
	n.peers.Drop()
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
	return n.carryOutWith(dataplane.Options{})
}

func (n *node) carryOutWith(o dataplane.Options) dataplane.Transaction {
	n.Helper()
	tx := n.Plan(o)
	if err := n.kernel.Apply(tx); err != nil {
		n.Fatal(err)
	}
	n.Commit(tx, tx.Taken())
	return tx
}

// collectGarbage carries out plans until nothing is left for later.
func (n *node) collectGarbage() {
	n.Helper()
	for range 4 {
		n.ResolveNames(true)
		n.carryOutWith(dataplane.Options{CollectGarbage: true})
	}
	if left := n.Leftovers(); len(left) > 0 || n.Garbage() || n.Stale() || n.Unfinished() {
		n.Errorf("it is left: %q", left)
	}
}

// expect fails unless a text that is planned, or what else, has and lacks other texts, each with a prefix: + or -.
func (n *node) expect(text string, parts ...string) {
	n.Helper()
	for _, p := range parts {
		if strings.Contains(text, p[1:]) != (p[0] == '+') {
			n.Errorf("%s is not true of\n%s", p, text)
		}
	}
}

// reconciled fails if a plan finds something to do.
func (n *node) reconciled() {
	n.Helper()
	if tx := n.Plan(dataplane.Options{}); !tx.Empty() {
		n.Errorf("there is something to do:\n%s", tx)
	}
}

// without returns a transaction's rules without those that a function selects, as the kernel has them if it rejects
// these.
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
