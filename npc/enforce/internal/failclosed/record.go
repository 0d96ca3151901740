package failclosed

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
)

// isolatedWord begins what record adds to a comment.
const isolatedWord = " isolated:"

// Recorded returns the entries that a family's kernel has of local pods whose addresses changed hands, where their
// comments have to change: they name the pod that has the address, or had it last, and its isolated directions. From
// this a next process knows how the pod was isolated, even if it was deleted meanwhile. Until the connections of the
// former pod are deleted, the other entries do not show it.
func (g *Filter) Recorded(f npc.Family) (out []ipset.Element) {
	for e, st := range g.tables[f].Local.Differences() {
		a, was := e.Prefix.Addr(), st.Have.Comment
		if !st.Exists || !g.tables[f].Flows.Has(a) {
			continue
		}
		comment, _, _ := parseRecord(was)
		isolated := g.deletedPods.pods[a].isolated
		if p := g.index.Addresses.Owner(a); p != nil {
			isolated = g.isolated[p]
			if p.Local() {
				comment = p.LocalComment()
			}
		}
		if st.Have.Comment = record(comment, isolated); st.Have.Comment != was {
			out = append(out, ipset.Element{Entry: e, Attr: st.Have})
		}
	}
	slices.SortFunc(out, func(a, b ipset.Element) int { return a.Prefix.Addr().Compare(b.Prefix.Addr()) })
	return out
}

// record returns the comment of a pod's entry in the set of the local pods with the pod's isolated directions.
func record(comment string, isolated [len(npc.Directions)]bool) string {
	var in []string
	for _, d := range npc.Directions {
		if isolated[d] {
			in = append(in, d.String())
		}
	}
	return comment + isolatedWord + cmp.Or(strings.Join(in, "-"), "no")
}

// parseRecord returns what record got; ok is not set if the text has no directions.
func parseRecord(text string) (comment string, isolated [len(npc.Directions)]bool, ok bool) {
	comment, in, ok := strings.Cut(text, isolatedWord)
	for _, d := range npc.Directions {
		isolated[d] = strings.Contains(in, d.String())
	}
	return comment, isolated, ok
}
