package reachability

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/cluster"
)

// cells divides classes into cells that are alike in one respect: as sources, or as destinations.
type cells struct {
	of   []int // class -> its cell
	next int
}

// newCells returns cells of the classes that have the same key.
func newCells(keys []string) *cells {
	c := &cells{of: make([]int, len(keys))}
	known := map[string]int{}
	for i, key := range keys {
		at, ok := known[key]
		if !ok {
			at = c.next
			c.next++
			known[key] = at
		}
		c.of[i] = at
	}
	return c
}

// split divides the cells that are partly in a set.
func (c *cells) split(by endSet) {
	known := map[int]int{} // cell -> that of its members that are in the set
	for w, word := range by {
		for ; word != 0; word &= word - 1 {
			i := w*64 + bits.TrailingZeros64(word)
			at, ok := known[c.of[i]]
			if !ok {
				at = c.next
				c.next++
				known[c.of[i]] = at
			}
			c.of[i] = at
		}
	}
}

// groups returns the classes of each cell, in the order of their first classes.
func (c *cells) groups() (out [][]int) {
	known := map[int]int{}
	for i, cell := range c.of {
		at, ok := known[cell]
		if !ok {
			at = len(out)
			known[cell] = at
			out = append(out, nil)
		}
		out[at] = append(out[at], i)
	}
	return out
}

// evaluate evaluates the policies of a cluster state for some classes in one family. The ends of classes that have none
// there match no selector.
func (s *subjects) evaluate(classes []int, state, family int) *evaluation {
	p := &Partition{}
	for _, i := range classes {
		p.ends = append(p.ends, s.classes[i].ends[state][family])
	}
	return p.evaluate(s.views[state])
}

// alikeGroups returns the classes that are alike as sources, and those that are alike as destinations: whatever is
// asked about the first of a group holds for all of it. Most policies distinguish classes in one respect only.
func (s *subjects) alikeGroups() (sources, destinations [][]int) {
	all := make([]int, len(s.classes))
	for i := range all {
		all[i] = i
	}
	out, in := make([]strings.Builder, len(all)), make([]strings.Builder, len(all))
	for i, c := range s.classes {
		key := fmt.Sprint(c.in, c.has, c.nodes, c.own)
		if c.alone() {
			key += fmt.Sprint(" alone ", i)
		}
		for w, v := range s.views {
			// This node sees another owner of an address.
			if p := v.Pods[s.all[c.members[0]].Pod]; p != nil && v.nodes[p.Node] {
				key += fmt.Sprintf(" %d on %s", w, p.Node)
			}
		}
		out[i].WriteString(key)
		in[i].WriteString(key)
	}
	var peers [len(npc.Directions)][]endSet
	for w := range states {
		for f := range families {
			e := s.evaluate(all, w, f)
			r := &Relation{evaluation: e}
			for i := range all {
				out[i].WriteString(strconv.Quote(r.key(e.choices[npc.Egress][i])))
				in[i].WriteString(strconv.Quote(r.key(e.choices[npc.Ingress][i])))
				if p := e.pod(i); p != nil {
					fmt.Fprintf(&in[i], "%q", slices.Sorted(slices.Values(s.views[w].portWords(p))))
				}
			}
			for d := range peers {
				peers[d] = append(peers[d], e.distinctPeers(npc.Direction(d))...)
			}
		}
	}
	as := func(keys []strings.Builder, peers []endSet) [][]int {
		texts := make([]string, len(keys))
		for i := range keys {
			texts[i] = keys[i].String()
		}
		c := newCells(texts)
		for _, set := range peers {
			c.split(set)
		}
		return c.groups()
	}
	return as(out, peers[npc.Ingress]), as(in, peers[npc.Egress])
}

// distinctPeers returns the sets of ends that the peers of rules of a direction match, each once.
func (e *evaluation) distinctPeers(d npc.Direction) (out []endSet) {
	seen := map[string]bool{}
	for r := range cluster.RulesOf(e.View, d) {
		for _, c := range r.Peers {
			if key := peerKey(c); !seen[key] {
				seen[key] = true
				out = append(out, e.peer(c))
			}
		}
	}
	return out
}
