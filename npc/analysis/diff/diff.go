// Package diff finds the connections that are allowed in one of two cluster states only, on which ports, and why.
//
//	r := diff.Compare(before, after, diff.Options{})
//	for _, g := range r.Closes.Groups(200) {
//		g.From, g.To       // workloads and addresses
//		g.Ports            // what the group loses
//		g.Before, g.After  // what decides about g.Example
//	}
//
//	align                   a workload that only one state has as a template is compared pod by pod
//	reachability.Domains    an address for each domain name that a policy names
//	reachability.Compare    what opens and what closes between any two subjects
//	block, names, set       what changes alike is put together, and named by workloads
//	reason                  what decides about an example
//
// It trusts npc/analysis/internal/reachability and npc/analysis/explain. It does not know where cluster states come
// from, nor how differences are written.
package diff

import (
	"cmp"
	"slices"

	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/cluster"
)

// Options limit what is compared.
type Options struct {
	// From and To are the namespaces of sources and of destinations, Either that of at least one of both. Empty stands
	// for all.
	From, To, Either string
}

// Result is how two cluster states differ.
type Result struct {
	Opens, Closes *Side
	// Omitted are pods that are not compared, because they own none of their addresses in one of the cluster states.
	Omitted []string
	// Pods, Workloads and Ranges count what was compared: pods, their workloads, and ranges of addresses outside.
	Pods, Workloads, Ranges int
}

// Side is what opens, or what closes.
type Side struct {
	// Pods counts the ordered pairs of pods that differ on some port, and Outside those of a pod and a range of
	// addresses outside.
	Pods, Outside int
	groups        []*group
	*names
	states *states
	opens  bool
}

// states are the views that are compared.
type states [2]*cluster.View

// Compare compares two cluster states. It changes neither.
func Compare(before, after *cluster.Cluster, o Options) *Result {
	was, is := before.View(), after.View()
	before, after = align(before, was, is), align(after, is, was)
	if domains := reachability.Domains(nil, nil, before.View(), after.View()); domains != nil {
		before, after = before.Clone(), after.Clone()
		before.SetLearned(domains)
		after.SetLearned(domains)
	}
	w := &states{before.View(), after.View()}
	d := reachability.Compare(w[0], w[1])
	n := newNames(d, w)
	r := &Result{Omitted: slices.Concat(d.Omitted[0], d.Omitted[1]), Workloads: len(n.workloads), Pods: n.pods,
		Ranges: n.ranges}
	slices.Sort(r.Omitted)
	r.Omitted = slices.Compact(r.Omitted)
	r.Opens = newSide(n, w, o, true)
	r.Closes = newSide(n, w, o, false)
	return r
}

// Same reports whether nothing differs.
func (r *Result) Same() bool { return len(r.Opens.groups)+len(r.Closes.groups) == 0 }

// Len returns the number of groups.
func (s *Side) Len() int { return len(s.groups) }

// Group is sources and destinations. The same ports open, or close, between each source and each destination.
type Group struct {
	From  Set   `json:"from"`
	To    Set   `json:"to"`
	Ports Ports `json:"ports"`
	// Pods counts the pairs of pods, Outside those of a pod and a range of addresses.
	Pods    int `json:"pairs_of_pods"`
	Outside int `json:"pairs_with_ranges,omitempty"`
	// Example is a flow of the group, Before and After what decides about it.
	Example Example `json:"example"`
	Before  Reason  `json:"before"`
	After   Reason  `json:"after"`
}

// Groups returns the largest groups, at most as many as the limit; 0 is all.
func (s *Side) Groups(limit int) []Group {
	var out []Group
	s.Each(func(g Group) bool {
		out = append(out, g)
		return limit == 0 || len(out) < limit
	})
	return out
}

// Each calls found for each group, the largest first, as long as it returns true. Groups may have long lists, which are
// not kept.
func (s *Side) Each(found func(Group) bool) {
	for _, g := range s.groups {
		made := Group{From: s.set(g.sources, g.destinations), To: s.set(g.destinations, g.sources), Ports: g.ports,
			Pods: g.pods, Outside: g.outside}
		s.explain(&made, g)
		if !found(made) {
			return
		}
	}
}

// group is a Group by lines and columns of the comparison.
type group struct {
	sources, destinations part
	ports                 Ports
	pods, outside         int
}

func newSide(n *names, w *states, o Options, opens bool) *Side {
	s := &Side{names: n, states: w, opens: opens}
	block := findBlocks(n.Differences, opens)
	for _, p := range n.pairings(o) {
		for _, found := range block {
			if g := p.group(found); g.pods+g.outside > 0 {
				s.groups = append(s.groups, g)
				s.Pods, s.Outside = s.Pods+g.pods, s.Outside+g.outside
			}
		}
	}
	slices.SortStableFunc(s.groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.pods, a.pods), cmp.Compare(b.outside, a.outside),
			slices.Compare(a.sources.first(), b.sources.first()),
			slices.Compare(a.destinations.first(), b.destinations.first()), comparePorts(a.ports, b.ports))
	})
	return s
}
