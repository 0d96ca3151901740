package networkpolicy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
)

const (
	// maxBits is how many bits distinguish the shards; their digits end the names of nodes.
	maxBits = 16
	// maxNesting is how many nodes may follow each other: nf_tables takes 16 chains, gotos among them, and weave-npc's
	// other chains are up to eight below FORWARD, with a list of Admin policies.
	maxNesting = 7
)

// dispatchTree leads packets of isolated pods to the rules of their shard, in one direction. A packet asks a set of
// half of the pods that remain at each rule, so that it meets as many rules as the logarithm of the shards.
//
// A rule of it states only that members of a set are found by way of a chain. So surplus rules, and rules that are
// missing yet, mislead none.
type dispatchTree struct {
	direction npc.Direction
	tables    [len(npc.Families)]*dataplane.Table
	// maxLeaves is as in Sharding.
	maxLeaves int
	root      [len(npc.Families)]*dataplane.Chain
	// shards are those with rules in the direction, in the order of their bits.
	shards []*shard
	// nodes are the chains after the root: the bits that their shards have in common -> node.
	nodes map[string]*node
	// stale is set if the shards changed since the tree was built.
	stale bool
}

// node is a chain that leads to the rules of some shards, and the set of their pods that are led there.
type node struct {
	chains [len(npc.Families)]*dataplane.Chain
	pods   [len(npc.Families)]*dataplane.Set
}

// treePlan is what a tree is to be.
type treePlan struct {
	// rules has by the bits of a node, empty for the root, a rule for each match.
	rules [len(npc.Families)]map[string]map[string]dataplane.ChainRule
	// paths are the nodes that dispatch to a shard.
	paths map[*shard][]*node
}

// nodeBits returns the bits by which a shard is found.
func nodeBits(name string) string {
	var b strings.Builder
	for _, c := range naming.Hash("way", name) {
		if b.WriteByte('0' + byte(c)&1); b.Len() == maxBits {
			break
		}
	}
	return b.String()
}

func byBits(a, b *shard) int {
	return cmp.Or(strings.Compare(a.bits, b.bits), strings.Compare(a.name, b.name))
}

// add makes the tree dispatch to a shard's rules, once it is rebuilt.
func (t *dispatchTree) add(s *shard) {
	if i, there := slices.BinarySearchFunc(t.shards, s, byBits); !there {
		t.shards, t.stale = slices.Insert(t.shards, i, s), true
	}
}

// remove makes the tree no longer dispatch to a shard's rules, once it is rebuilt.
func (t *dispatchTree) remove(s *shard) {
	if i, there := slices.BinarySearchFunc(t.shards, s, byBits); there {
		t.shards, t.stale = slices.Delete(t.shards, i, i+1), true
	}
}

// rebuild makes the tree as its shards want it. It returns the shards with another path, and the nodes that dispatch to
// nothing now, which are to be dropped once no pod is in their sets.
func (t *dispatchTree) rebuild(base *rules.Base) (moved []*shard, unused []*node) {
	t.stale = false
	p := &treePlan{paths: map[*shard][]*node{}}
	for f := range p.rules {
		p.rules[f] = map[string]map[string]dataplane.ChainRule{"": {}}
	}
	t.split(p, base, t.shards, "", "", nil)
	for bits, n := range t.nodes {
		if _, still := p.rules[npc.IPv4][bits]; !still {
			delete(t.nodes, bits)
			unused = append(unused, n)
		}
	}
	for f := range npc.Families {
		t.root[f].SetRules(p.rules[f][""])
		for bits, n := range t.nodes {
			n.chains[f].SetRules(p.rules[f][bits])
		}
	}
	for _, s := range t.shards {
		if !slices.Equal(s.path, p.paths[s]) {
			s.path = p.paths[s]
			moved = append(moved, s)
		}
	}
	return moved, unused
}

// split plans the tree from a node to shards whose bits begin alike.
func (t *dispatchTree) split(p *treePlan, base *rules.Base, shards []*shard, bits, from string, path []*node) {
	nesting := strings.Count(from, "1")
	if len(shards) <= t.maxLeaves || len(bits) == maxBits || nesting == maxNesting {
		for _, s := range shards {
			p.leaf(t.direction, s, from, len(bits), path)
		}
		return
	}
	half := slices.IndexFunc(shards, func(s *shard) bool { return s.bits[len(bits)] == '1' })
	if half < 0 {
		half = len(shards)
	}
	zeros, ones := shards[:half], shards[half:]
	switch {
	case len(zeros) == 0 && t.maxLeaves > 0:
		t.split(p, base, ones, bits+"1", from, path)
		return
	case len(ones) == 1 && t.maxLeaves > 0:
		p.leaf(t.direction, ones[0], from, len(bits), path)
	case len(ones) > 0:
		n := t.node(bits+"1", base)
		for f := range npc.Families {
			match := naming.Match(n.pods[f].Key(), t.direction.Own())
			p.rules[f][from][match] = dataplane.ChainRule{Target: "-g " + n.chains[f].Name(), About: n.pods[f].About(),
				Order: len(bits)}
			p.rules[f][bits+"1"] = map[string]dataplane.ChainRule{}
		}
		t.split(p, base, ones, bits+"1", bits+"1", append(slices.Clip(path), n))
	}
	t.split(p, base, zeros, bits+"0", from, path)
}

// leaf plans that a node leads to a shard's own chain.
func (p *treePlan) leaf(d npc.Direction, s *shard, from string, order int, path []*node) {
	p.paths[s] = path
	for f := range npc.Families {
		match := naming.Match(s.isolated[f].Key(), d.Own())
		p.rules[f][from][match] = dataplane.ChainRule{Target: "-g " + s.chains[f].Name(),
			About: iptables.Comment("isolated pods of " + s.name), Order: order}
	}
}

// node returns a node of the tree, making it if need be.
func (t *dispatchTree) node(bits string, base *rules.Base) *node {
	if n := t.nodes[bits]; n != nil {
		return n
	}
	n := &node{}
	about := fmt.Sprintf("isolated pods of namespaces by the number %s, %s", bits, t.direction)
	for f, table := range t.tables {
		c := table.Chains.AddDispatch(naming.NodeChain(t.direction, bits),
			"the way to the rules of "+about, base, t.direction)
		n.chains[f] = c
		n.pods[f] = table.Sets.Add(naming.Set(table.Family, "branch", t.direction.String(), bits), ipset.HashIP, about)
		n.pods[f].Dispatch(c, t.direction, maxBits+1-len(bits))
	}
	t.nodes[bits] = n
	return n
}

// drop drops the node's chains and sets.
func (n *node) drop() {
	for f := range npc.Families {
		n.chains[f].Drop()
		n.pods[f].Drop()
	}
}
