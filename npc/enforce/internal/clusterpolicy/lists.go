package clusterpolicy

import (
	"maps"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane"
	"github.com/weave-npc/weave-npc/npc/enforce/internal/index"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/enforce/rules"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// maxLists limits the lists of a tier and direction. With more combinations of policies, the last list is shared by all
// that have none of their own: packets are matched with one list after the other.
const maxLists = 16

// lists are the lists of one tier and direction, and what leads to them, which is there while there is a list.
type lists struct {
	tier      policy.Tier
	direction npc.Direction
	tables    [len(npc.Families)]*dataplane.Table
	sets      *index.Sets
	// combinations are the policies that some local pod has together, by their ids.
	combinations map[string]*combination
	byID         map[string]*list
	roots        [len(npc.Families)]*dataplane.Chain
	// held is set if lists that were found stay because input is missing, and occupied if the kernel sent pods to lists
	// when it was looked at last.
	held, occupied bool
	// pods are the local pods that have a list.
	pods [len(npc.Families)]*dataplane.Set
	// unused are to be dropped once no pod is in their sets.
	unused []*list
}

// combination is policies of a tier with rules in a direction that choose the same local pods, in order.
type combination struct {
	id       string
	policies []*enforced
	pods     map[*index.Pod]struct{}
	list     *list
}

func newLists(tier policy.Tier, d npc.Direction, tables [len(npc.Families)]*dataplane.Table, sets *index.Sets) *lists {
	return &lists{tier: tier, direction: d, tables: tables, sets: sets, combinations: map[string]*combination{},
		byID: map[string]*list{}}
}

// combine returns the combination of some policies, in order; nil for none.
func (ls *lists) combine(policies []*enforced) *combination {
	if len(policies) == 0 {
		return nil
	}
	ids := make([]string, 0, len(policies))
	for _, p := range policies {
		ids = append(ids, p.id)
	}
	slices.Sort(ids)
	id := naming.Hash(ids...)
	c := ls.combinations[id]
	if c == nil {
		c = &combination{id: id, pods: map[*index.Pod]struct{}{}}
		ls.combinations[id] = c
	}
	c.policies = policies
	return c
}

// distribute finds the list of each combination, and calls moved with the pods of those that have another one now.
// Which combinations have lists of their own follows from the combinations alone.
func (ls *lists) distribute(base *rules.Base, moved func(*index.Pod)) {
	maps.DeleteFunc(ls.combinations, func(_ string, c *combination) bool { return len(c.pods) == 0 })
	all := slices.SortedFunc(maps.Values(ls.combinations),
		func(a, b *combination) int { return strings.Compare(a.id, b.id) })
	own := all
	if len(all) > maxLists {
		own = all[:maxLists-1]
	}
	used := map[*list]bool{}
	jump := func(c *combination, id string) *list {
		l := ls.list(id, base)
		used[l] = true
		if c.list != l {
			c.list = l
			for p := range c.pods {
				moved(p)
			}
		}
		return l
	}
	for _, c := range own {
		jump(c, c.id).set(c.policies, base)
	}
	if rest := all[len(own):]; len(rest) > 0 {
		var l *list
		for _, c := range rest {
			l = jump(c, sharedID)
		}
		l.set(union(rest), base)
	}
	for id, l := range ls.byID {
		if !used[l] {
			delete(ls.byID, id)
			ls.unused = append(ls.unused, l)
		}
	}
	ls.jump(base)
}

// union returns the policies of combinations, in order.
func union(of []*combination) (policies []*enforced) {
	known := map[*enforced]bool{}
	for _, c := range of {
		for _, p := range c.policies {
			if !known[p] {
				known[p] = true
				policies = append(policies, p)
			}
		}
	}
	slices.SortFunc(policies, before)
	return policies
}

// list returns the list of an id, making it if need be.
func (ls *lists) list(id string, base *rules.Base) *list {
	l := ls.byID[id]
	if l == nil {
		l = ls.newList(id, base)
		ls.byID[id] = l
	}
	return l
}

// jump has the roots jump to the lists.
func (ls *lists) jump(base *rules.Base) {
	ls.look()
	for f, t := range ls.tables {
		switch {
		case ls.roots[f] == nil && ls.leads():
			ls.roots[f] = t.Chains.AddLists(ls.tier, base, ls.direction)
			ls.pods[f] = t.Sets.AddFixed(naming.TierSet(ls.tier.String(), ls.direction), ipset.HashIP,
				"local pods that "+ls.tier.String()+" policies choose, "+ls.direction.String())
			ls.pods[f].DispatchToTier(ls.tier, ls.roots[f], ls.direction, rootHeight)
		case ls.roots[f] == nil:
			continue
		}
		rules := map[string]dataplane.ChainRule{}
		for _, l := range ls.byID {
			rules[naming.Match(l.pods[f].Key(), ls.direction.Own())] =
				dataplane.ChainRule{Target: "-g " + l.chains[f].Name(), About: l.about}
		}
		ls.roots[f].SetRules(rules)
	}
}

// look finds out whether the kernel sends pods to lists.
func (ls *lists) look() {
	ls.occupied = slices.ContainsFunc(ls.tables[:], func(t *dataplane.Table) bool {
		return t.Sets.Occupied(naming.TierSet(ls.tier.String(), ls.direction))
	})
}

// leads reports whether the roots have to jump to lists: there are some, or some were found and stay, or the kernel
// still dispatches pods to former lists. Pods are added to their tails before the lists cease to evaluate them.
func (ls *lists) leads() bool { return ls.held || ls.occupied || len(ls.byID) > 0 }

// prune drops the lists that no pod has.
func (ls *lists) prune() {
	if ls.roots[0] == nil {
		return // there has been no list since
	}
	for _, l := range ls.unused {
		l.drop()
	}
	ls.unused = nil
	for _, l := range ls.byID {
		l.prune()
	}
	if !ls.leads() {
		for f := range npc.Families {
			ls.roots[f].Drop()
			ls.pods[f].Drop()
			ls.roots[f], ls.pods[f] = nil, nil
		}
	}
}
