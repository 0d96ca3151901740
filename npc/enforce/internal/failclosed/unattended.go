package failclosed

import (
	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/policy/ipblock"
)

// aliveSet is a set that shows that weave-npc runs, and its elements.
type aliveSet struct {
	*dataplane.Set
	elements []ipset.Element
}

// addUnattended makes the sets of a family desired that close unknown addresses while weave-npc does not run. The first
// one is made full: a kernel that lacks it dropped nothing for its sake before.
func addUnattended(t *dataplane.Table) (alive aliveSet, unattended *dataplane.Set) {
	var elements []ipset.Element
	for _, p := range ipblock.All(t.Family) {
		elements = append(elements, ipset.Element{Entry: ipset.Net(p), Attr: ipset.Attr{Comment: "weave-npc is running"}})
	}
	of := ipset.Set{Name: naming.FixedSet(t.Family, naming.Alive), Type: ipset.HashNet, Timeout: naming.AliveTimeout}
	initial := func() []ipset.Element { return elements }
	return aliveSet{dataplane.Fix(t.Sets.AddExpiring(of, "every address while weave-npc runs", initial)), elements},
		t.Sets.AddFixed(naming.Unattended, ipset.HashNet, "unknown addresses that are dropped while weave-npc does not run")
}

// Alive returns the operation that renews the elements of a family's set which shows that weave-npc runs.
func (g *Filter) Alive(f npc.Family) ipset.Op {
	return ipset.Op{Kind: ipset.Add, Set: g.alive[f].Set.Set, Elements: g.alive[f].elements}
}

// updateUnattended brings the sets up to date that close unknown addresses while weave-npc does not run. What was read
// incompletely may have policies.
func (g *Filter) updateUnattended(f Facts) {
	want := [len(npc.Families)]entries{{}, {}}
	known := f.Policies > 0 || f.Isolated != [len(npc.Directions)]int{} || g.lacks(f)
	if known && g.mode != enforce.FailClosedNever {
		for family, e := range halves(g.Ranges.scope().prefixes()...) {
			want[family][e] = "unknown while weave-npc is not running"
		}
	}
	for family := range want {
		g.unattended[family].fill(want[family])
	}
}
