package dataplane

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

// maxRejected is how many rules of a policy are left out one by one in a family. With more, all of its rules are: each takes
// several restores to be found.
const maxRejected = 4

// rejections are what the kernel did not take, which is left out until Retry.
type rejections struct {
	// any is set if the kernel did not take some rules or sets.
	any bool
	// sets are those of them by the names that rules have for them -> why.
	sets map[string]string
}

// ofRule returns why a rule is left out; empty if it is not.
func (x *rejections) ofRule(r *rule) string {
	if r.rejected != "" || !x.any {
		return r.rejected
	}
	return x.ofSetsOf(r)
}

// ofSetsOf returns why a set is left out that a rule refers to; empty if none is.
func (x *rejections) ofSetsOf(r *rule) string {
	if len(x.sets) == 0 {
		return ""
	}
	for _, name := range (iptables.Rule{Match: r.match}).Sets() {
		if why := x.sets[name]; why != "" {
			return why
		}
	}
	return ""
}

// ofMember reports whether an entry of a list cannot be, because the kernel does not take the set that it names.
func (x *rejections) ofMember(t *Table, e ipset.Entry) bool {
	return x.any && e.Set != "" && t.sets[e.Set] != nil && t.sets[e.Set].rejected != ""
}

// rejectSets leaves out sets that the kernel did not take, name -> reason, and the rules that need them. It returns those that
// cannot be left out, which are those that every node has.
func (t *Table) rejectSets(reasons map[string]string) (others []string) {
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		s := t.sets[name]
		if s == nil || s.fixed || !s.wanted {
			others = append(others, name)
			continue
		}
		s.rejected, s.exists, t.rejections.any = reasons[name], false, true
		t.rejections.sets[s.key] = s.rejected
		s.unload()
	}
	return others
}

// rejectRules leaves out rules that the kernel did not take, id -> reason. It returns those that cannot be left out: only those can
// that only allow, or only report.
func (t *Table) rejectRules(reasons map[string]string) (others []string) {
	if len(reasons) == 0 {
		return nil
	}
	found, counts := map[string]bool{}, map[*Owner]int{}
	for c, r := range t.rules() {
		if len(r.owners) == 0 && !r.reports {
			continue
		}
		if id := r.id(c); r.rejected == "" && reasons[id] != "" {
			r.rejected, t.rejections.any, found[id] = reasons[id], true, true
			c.touch()
		}
		if r.rejected != "" {
			for o := range r.owners {
				counts[o]++
			}
		}
	}
	t.rejectAll(counts)
	for _, id := range slices.Sorted(maps.Keys(reasons)) {
		if !found[id] {
			others = append(others, id)
		}
	}
	return others
}

// rejectAll leaves out all rules that only policies ask for of which too many are rejected.
func (t *Table) rejectAll(counts map[*Owner]int) {
	maps.DeleteFunc(counts, func(_ *Owner, n int) bool { return n <= maxRejected })
	if len(counts) == 0 {
		return
	}
	for c, r := range t.rules() {
		if len(r.owners) == 0 || r.rejected != "" {
			continue
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(r.owners)), func(o *Owner) bool { return counts[o] == 0 }) {
			c.touch() // the rule goes, if it is there
			r.rejected = fmt.Sprintf("more than %d rules of the policy are refused: all are left out", maxRejected)
		}
	}
}

// rules yields every rule with its chain.
func (t *Table) rules() iter.Seq2[*Chain, *rule] {
	return func(yield func(*Chain, *rule) bool) {
		for _, c := range t.chains {
			for _, r := range c.rules {
				if !yield(c, r) {
					return
				}
			}
		}
	}
}

// Retry has the rules and sets planned again that were rejected.
func (t *Table) Retry() {
	if !t.rejections.any {
		return
	}
	t.rejections.any = false
	clear(t.rejections.sets)
	for _, c := range t.chains {
		for _, r := range c.rules {
			r.rejected = ""
		}
		c.touch()
	}
	for _, s := range t.sets {
		s.rejected = ""
		if len(s.dirty) > 0 || !s.exists {
			t.touch(s)
		}
	}
}

// Rejecting reports whether the kernel did not take some rules or sets.
func (t *Table) Rejecting() bool { return t.rejections.any }

// Rejected yields the policies of which a rule is left out -> why.
func (t *Table) Rejected() iter.Seq2[*Owner, string] {
	return func(yield func(*Owner, string) bool) {
		for _, r := range t.rules() {
			why := t.rejections.ofRule(r)
			if why == "" {
				continue
			}
			for o := range r.owners {
				if !yield(o, why) {
					return
				}
			}
		}
	}
}

// LoggingRejected returns why packets that are dropped are not reported, in some direction; empty if they are.
func (t *Table) LoggingRejected() string {
	for _, d := range traffic.Directions {
		for _, r := range t.chains[naming.DropChain(d)].rules {
			if why := t.rejections.ofRule(r); why != "" {
				return why
			}
		}
	}
	return ""
}
