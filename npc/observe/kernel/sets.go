package kernel

import (
	"regexp"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/analysis/kernelview"
	"github.com/weave-npc/weave-npc/npc/enforce/controller"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// Sets returns the sets in the order of their names.
func (s *State) Sets() []kernelview.SetRow {
	uses, useOf := s.purpose.Sets, s.useOfSets()
	rows := []kernelview.SetRow{}
	for _, l := range s.sets {
		use := useOf(l.Name)
		row := kernelview.SetRow{Set: l.Name, Type: string(l.Type), About: use.About,
			Policies: use.Policies, Members: []kernelview.Member{}}
		for _, m := range l.Members {
			row.Members = append(row.Members, member(l, m, uses))
		}
		slices.SortFunc(row.Members, func(a, b kernelview.Member) int { return strings.Compare(a.Entry, b.Entry) })
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b kernelview.SetRow) int { return strings.Compare(a.Set, b.Set) })
	return rows
}

// useOfSets returns a function that returns what a set is used for: for one that is unknown, the policies that rules
// name.
func (s *State) useOfSets() func(set string) controller.SetUse {
	byRules := s.policiesBySet()
	return func(set string) controller.SetUse {
		use, known := s.purpose.Sets[set]
		if !known {
			use.Policies = byRules[set]
		}
		return use
	}
}

// member returns the row of an entry. Its comment describes it; an entry of a list is described by the use of the set
// that it names.
func member(l ipset.Listing, m ipset.Element, uses map[string]controller.SetUse) kernelview.Member {
	row := kernelview.Member{Entry: m.Entry.String(), Is: m.Comment, NoMatch: m.NoMatch}
	if l.Type == ipset.ListSet && uses[m.Set].About != "" {
		row.Is = uses[m.Set].About
	}
	if strings.HasPrefix(l.Name, naming.SetPrefix+"local-pods") {
		_, row.Is, _ = strings.Cut(m.Comment, " ") // without the pod's id
	}
	return row
}

// ruleOwner matches a policy's rule in the comment of an iptables rule, such as "shop/web rule 2".
var ruleOwner = regexp.MustCompile(`(\S+/\S+) rule \d+`)

// policiesBySet returns the policies of each set, as named in the comments of the rules that match the set or a list
// that contains it.
func (s *State) policiesBySet() map[string][]string {
	found := map[string][]string{}
	add := func(set string, policies []string) {
		for _, p := range policies {
			if !slices.Contains(found[set], p) {
				found[set] = append(found[set], p)
			}
		}
		slices.Sort(found[set])
	}
	for _, r := range s.Rules() {
		var policies []string
		for _, m := range ruleOwner.FindAllStringSubmatch(r.For, -1) {
			policies = append(policies, m[1])
		}
		for _, set := range r.Sets {
			add(set, policies)
		}
	}
	for _, l := range s.sets {
		for _, m := range l.Members {
			if l.Type == ipset.ListSet {
				add(m.Set, found[l.Name])
			}
		}
	}
	return found
}
