package found

import (
	"regexp"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/enforce/dataplane/order"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
	"github.com/weave-npc/weave-npc/npc/policy"
)

// Sets returns those of the sets that were read that are a family's to keep or to remove, by name: those that it knows,
// which are its own, and of those that the other family does not know either what weave-npc has made for it.
func Sets[S any](read []ipset.Listing, f npc.Family, own, other map[string]S) map[string]*ipset.Listing {
	families := map[string]ipset.Family{}
	for _, l := range read {
		if l.Type != ipset.ListSet {
			families[l.Name] = l.Family
		}
	}
	sets := map[string]*ipset.Listing{}
	for i := range read {
		l := &read[i]
		_, isOwn := own[l.Name]
		_, isOther := other[l.Name]
		made := naming.IsOurSet(l.Name) || naming.IsAncestorSet(l.Name)
		if isOwn || !isOther && made && familyOf(l, families) == naming.IPSet(f) {
			sets[l.Name] = l
		}
	}
	return sets
}

// familyOf returns a set's family; families are those of the sets that are no lists. A list has none but its members':
// the rules of one family must not lose it for what the other one does. One without members that neither wants is
// removed with the first.
func familyOf(l *ipset.Listing, families map[string]ipset.Family) ipset.Family {
	if l.Type != ipset.ListSet {
		return l.Family
	}
	for _, m := range l.Members {
		if f, ok := families[m.Set]; ok {
			return f
		}
	}
	return naming.IPSet(npc.IPv4)
}

// Uses is what rules do with the members of sets, by the names of these.
type Uses struct {
	// Asked are the sets that a rule in force asks for. Rules of lists that no other rule jumps to any more do not
	// count.
	Asked map[string]bool
	// Evaluated are the sets whose members' packets are dispatched further -> where they are evaluated.
	Evaluated map[string]Dispatch
}

// UsesOf returns what the rules of a family's chains do, name -> texts.
func UsesOf(f npc.Family, chains map[string][]string) Uses {
	u := Uses{Asked: map[string]bool{}, Evaluated: map[string]Dispatch{}}
	met := InForce(chains, func(string) bool { return false })
	for name, texts := range chains {
		is := ChainOf(name)
		for _, text := range texts {
			r, ours := iptables.Found(text)
			if !ours {
				r.Printed = text
			}
			for _, set := range r.Sets() {
				u.Asked[set] = u.Asked[set] || met[name]
				if is.leadsOn(r) {
					u.Evaluated[set] = is.At
				}
			}
		}
	}
	for _, t := range policy.Tiers {
		for _, d := range npc.Directions {
			u.Evaluated[naming.FixedSet(f, naming.TierSet(t.String(), d))] =
				Dispatch{Evaluation: order.ListOf(t), Direction: d}
		}
	}
	return u
}

// InForce returns the chains, of those with these texts, that packets of some pod may reach; empty reports whether a
// set has no members. After the last pod has left a chain, the jumps to it and its rules stay until they are collected,
// though no packet reaches them.
func InForce(chains map[string][]string, empty func(set string) bool) map[string]bool {
	met := map[string]bool{}
	var follow func(name string)
	follow = func(name string) {
		if met[name] {
			return
		}
		met[name] = true
		is := ChainOf(name)
		for _, text := range chains[name] {
			if r, ours := iptables.Found(text); ours && is.LeadsNoPod(r, empty) {
				continue
			}
			for _, to := range leads.FindAllStringSubmatch(text, -1) {
				follow(to[1])
			}
		}
	}
	for name := range chains {
		if ChainOf(name).everywhere() {
			follow(name)
		}
	}
	return met
}

// leads matches where a rule leads to another of our chains.
var leads = regexp.MustCompile(` -[gj] (` + naming.ChainPrefix + `[A-Z0-9a-z-]*)`)
