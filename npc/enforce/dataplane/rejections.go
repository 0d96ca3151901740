package dataplane

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// maxRejected is how many rules of a policy are left out one by one in a family. With more, all of its rules are: each
// takes several restores to be found.
const maxRejected = 4

// rejections are what the kernel did not take, which is left out until it is tried again.
type rejections struct {
	sets   *Sets
	chains *Chains
	// any is set if the kernel did not take some rules or sets.
	any bool
}

// rejectSets leaves out sets that the kernel did not take, name -> reason, and the rules that need them. It returns
// those that cannot be left out, which are those that every node has.
func (x *rejections) rejectSets(reasons map[string]string) (others []string) {
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		s := x.sets.byName[name]
		if s == nil || s.fixed || !s.wanted {
			others = append(others, name)
			continue
		}
		s.rejected, s.exists, x.any = reasons[name], false, true
		x.sets.family.rejected[s.key] = s.rejected
		s.unload()
	}
	return others
}

// rejectRules leaves out rules that the kernel did not take, id -> reason. It returns those that cannot be left out:
// only those can that only allow, or only report.
func (x *rejections) rejectRules(reasons map[string]string) (others []string) {
	if len(reasons) == 0 {
		return nil
	}
	found, counts := map[string]bool{}, map[*Owner]int{}
	for c, r := range x.chains.rules() {
		if len(r.Owners) == 0 && !r.reports {
			continue
		}
		if id := c.render(r).ID(); r.rejected == "" && reasons[id] != "" {
			r.rejected, x.any, found[id] = reasons[id], true, true
			c.Touch()
		}
		if r.rejected != "" {
			for o := range r.Owners {
				counts[o]++
			}
		}
	}
	x.rejectAll(counts)
	for _, id := range slices.Sorted(maps.Keys(reasons)) {
		if !found[id] {
			others = append(others, id)
		}
	}
	return others
}

// rejectAll leaves out all rules of policies that have too many rejected rules.
func (x *rejections) rejectAll(counts map[*Owner]int) {
	maps.DeleteFunc(counts, func(_ *Owner, n int) bool { return n <= maxRejected })
	if len(counts) == 0 {
		return
	}
	for c, r := range x.chains.rules() {
		if len(r.Owners) == 0 || r.rejected != "" {
			continue
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(r.Owners)), func(o *Owner) bool { return counts[o] == 0 }) {
			c.Touch() // the rule goes, if it is there
			r.rejected = fmt.Sprintf("more than %d rules of the policy are refused: all are left out", maxRejected)
		}
	}
}

// retry has the rules and sets planned again that were rejected.
func (x *rejections) retry() {
	if !x.any {
		return
	}
	x.any = false
	clear(x.sets.family.rejected)
	clear(x.sets.family.incomplete)
	for _, c := range x.chains.byName {
		for _, r := range c.rules {
			r.rejected = ""
		}
		c.Touch()
	}
	for _, s := range x.sets.byName {
		s.rejected = ""
		if !s.members.Clean() || !s.exists {
			s.touch()
		}
	}
}

// policies yields the policies with a rule that is left out -> why.
func (x *rejections) policies() iter.Seq2[*Owner, string] {
	return func(yield func(*Owner, string) bool) {
		for _, r := range x.chains.rules() {
			why := x.chains.family.rejection(r)
			if why == "" {
				continue
			}
			for o := range r.Owners {
				if !yield(o, why) {
					return
				}
			}
		}
	}
}

// ofLogging returns why packets that are dropped are not reported, in some direction; empty if they are.
func (x *rejections) ofLogging() string {
	for _, d := range npc.Directions {
		for _, r := range x.chains.byName[naming.DropChain(d)].rules {
			if why := x.chains.family.rejection(r); why != "" {
				return why
			}
		}
	}
	return ""
}
