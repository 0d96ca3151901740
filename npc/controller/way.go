package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc/dataplane"
	"github.com/weave-npc/weave-npc/npc/naming"
	"github.com/weave-npc/weave-npc/npc/traffic"
)

const (
	// crowd is how many parts a chain may lead to one by one. With more, half of them go to a chain of their own.
	crowd = 2
	// wayBits is how many bits tell the parts from each other; their digits end the names of branches.
	wayBits = 16
	// maxNesting is how many branches may follow each other: nf_tables takes 16 chains, gotos among them, and weave-npc's other chains are up to seven.
	maxNesting = 7
)

// way leads packets of isolated pods to the rules of their part, in one direction. A packet asks a set of half of the pods that remain at
// each rule, so that it meets as many rules as the logarithm of the parts.
//
// A rule of it states only that members of a set are found by way of a chain. So surplus rules, and rules that are missing yet, mislead
// nobody.
type way struct {
	direction traffic.Direction
	// crowd is the constant, but in tests; with 0 there is a branch at every chance.
	crowd int
	root  [len(traffic.Families)]*dataplane.Chain
	// parts are those with rules in the direction, in the order of their bits.
	parts []*part
	// branches are the chains after the root: the bits that their parts have in common -> branch.
	branches map[string]*branch
}

// branch is a chain that leads to the rules of some parts, and the set of their pods that are led there.
type branch struct {
	chains [len(traffic.Families)]*dataplane.Chain
	pods   [len(traffic.Families)]*dataplane.Set
}

// wayPlan is what a way is to be.
type wayPlan struct {
	rules [len(traffic.Families)]map[string]map[string]dataplane.Rule // bits of a branch, empty for the root -> match -> rule
	// through are the branches that lead to a part.
	through map[*part][]*branch
}

// partBits are the bits by which a part is found.
func partBits(name string) string {
	var b strings.Builder
	for _, c := range naming.Hash("way", name) {
		if b.WriteByte('0' + byte(c)&1); b.Len() == wayBits {
			break
		}
	}
	return b.String()
}

func byBits(a, b *part) int {
	return cmp.Or(strings.Compare(a.bits, b.bits), strings.Compare(a.name, b.name))
}

// leadTo has the way lead to a part's rules, or no more, once it is paved.
func (w *way) leadTo(pt *part, lead bool) {
	i, there := slices.BinarySearchFunc(w.parts, pt, byBits)
	switch {
	case lead && !there:
		w.parts = slices.Insert(w.parts, i, pt)
	case !lead && there:
		w.parts = slices.Delete(w.parts, i, i+1)
	}
}

// pave makes the way as its parts want it, and has their pods follow.
func (m *Controller) pave(w *way) {
	p := &wayPlan{through: map[*part][]*branch{}}
	for f := range p.rules {
		p.rules[f] = map[string]map[string]dataplane.Rule{"": {}}
	}
	m.divide(w, p, w.parts, "", "", nil)
	for bits, b := range w.branches {
		if _, still := p.rules[traffic.IPv4][bits]; !still {
			delete(w.branches, bits)
			for f := range traffic.Families {
				b.chains[f].Drop()
				b.pods[f].Drop()
			}
		}
	}
	for f := range traffic.Families {
		w.root[f].SetRules(p.rules[f][""])
		for bits, b := range w.branches {
			b.chains[f].SetRules(p.rules[f][bits])
		}
	}
	for _, pt := range w.parts {
		if !slices.Equal(pt.through, p.through[pt]) {
			pt.through = p.through[pt]
			for q := range pt.ns.local {
				if q.parts[w.direction] == pt {
					m.place(q)
				}
			}
		}
	}
}

// divide plans the way from a branch to parts whose bits begin alike.
func (m *Controller) divide(w *way, p *wayPlan, parts []*part, bits, from string, through []*branch) {
	nesting := strings.Count(from, "1")
	if len(parts) <= w.crowd || len(bits) == wayBits || nesting == maxNesting {
		for _, pt := range parts {
			p.lead(w, pt, from, len(bits), through)
		}
		return
	}
	half := slices.IndexFunc(parts, func(pt *part) bool { return pt.bits[len(bits)] == '1' })
	if half < 0 {
		half = len(parts)
	}
	zeros, ones := parts[:half], parts[half:]
	switch {
	case len(zeros) == 0 && w.crowd > 0:
		m.divide(w, p, ones, bits+"1", from, through)
		return
	case len(ones) == 1 && w.crowd > 0:
		p.lead(w, ones[0], from, len(bits), through)
	case len(ones) > 0:
		b := m.branch(w, bits+"1")
		for f := range traffic.Families {
			match := naming.Match(b.pods[f].Key(), w.direction.Own())
			p.rules[f][from][match] = dataplane.Rule{Target: "-g " + b.chains[f].Name(), About: b.pods[f].About(), Order: len(bits)}
			p.rules[f][bits+"1"] = map[string]dataplane.Rule{}
		}
		m.divide(w, p, ones, bits+"1", bits+"1", append(slices.Clip(through), b))
	}
	m.divide(w, p, zeros, bits+"0", from, through)
}

// lead plans that a branch leads to a part's own chain.
func (p *wayPlan) lead(w *way, pt *part, from string, order int, through []*branch) {
	p.through[pt] = through
	for f := range traffic.Families {
		match := naming.Match(pt.isolated[f].Key(), w.direction.Own())
		p.rules[f][from][match] = dataplane.Rule{Target: "-g " + pt.chains[f].Name(), About: comment("isolated pods of " + pt.name), Order: order}
	}
}

// branch returns a branch of a way, making it if need be.
func (m *Controller) branch(w *way, bits string) *branch {
	if b := w.branches[bits]; b != nil {
		return b
	}
	b := &branch{}
	about := fmt.Sprintf("isolated pods of namespaces by the number %s, %s", bits, w.direction)
	for f, t := range m.tables {
		c := t.Chains.AddDispatch(naming.BranchChain(w.direction, bits), "the way to the rules of "+about, m.base(m.uplinks), w.direction)
		b.chains[f] = c
		b.pods[f] = t.Sets.Add(naming.Set(t.Family, "branch", w.direction.String(), bits), ipset.HashIP, about)
		b.pods[f].Dispatch(c, w.direction, wayBits+1-len(bits))
	}
	w.branches[bits] = b
	return b
}
