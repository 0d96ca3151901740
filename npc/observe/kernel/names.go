package kernel

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/analysis/kernelview"
	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/enforce/naming"
)

// learned yields the elements that were learned for domain names, with their sets: their comments are the names.
func (s *State) learned() iter.Seq2[ipset.Listing, ipset.Element] {
	return func(yield func(ipset.Listing, ipset.Element) bool) {
		for _, l := range s.sets {
			for _, m := range l.Members {
				if l.Type == ipset.HashIP && l.Timeout == naming.LearnedTimeout && !yield(l, m) {
					return
				}
			}
		}
	}
}

// Learned returns the domain names that this node learned for addresses, by the keys of lists; lists has them by the names
// of their sets. What other sets have is there by the names of these.
func (s *State) Learned(lists map[string]string) map[string]map[netip.Addr][]cluster.LearnedName {
	out := map[string]map[netip.Addr][]cluster.LearnedName{}
	for l, m := range s.learned() {
		key, known := lists[l.Name]
		if !known {
			key = l.Name
		}
		if out[key] == nil {
			out[key] = map[netip.Addr][]cluster.LearnedName{}
		}
		out[key][m.Prefix.Addr()] = append(out[key][m.Prefix.Addr()], cluster.LearnedName{Name: m.Comment, Seconds: seconds(m)})
	}
	return out
}

// seconds returns how long what was learned still counts, while weave-npc runs.
func seconds(m ipset.Element) int { return max(0, int(m.Timeout)-naming.LearnedTimeout) }

// Names returns what this node learned for domain names, in the order of names, addresses and sets.
func (s *State) Names() []kernelview.NameRow {
	use := s.useOfSets()
	rows := []kernelview.NameRow{}
	for l, m := range s.learned() {
		rows = append(rows, kernelview.NameRow{Name: m.Comment, Addr: m.Prefix.Addr(),
			Seconds: seconds(m), Set: l.Name, Policies: use(l.Name).Policies})
	}
	slices.SortFunc(rows, func(a, b kernelview.NameRow) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), a.Addr.Compare(b.Addr), cmp.Compare(a.Set, b.Set))
	})
	return rows
}
