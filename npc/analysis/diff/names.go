package diff

import (
	"cmp"
	"slices"
	"sync"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/cluster"
)

// names are the subjects of a comparison by their workloads.
type names struct {
	*reachability.Differences
	workloads []workload     // in order
	of        []int          // subject -> its workload; -1 for addresses
	pods      int            // subjects that are pods
	ranges    int            // and those that are addresses
	spaces    map[string]int // namespace -> its workloads
	// several is set for the subjects that stand for a workload, which has connections with itself.
	several []bool
	// others return the cluster states with another pod of these workloads.
	others [2]func() (*cluster.View, map[string]string)
}

// workload is pods that one object makes, or a pod that nothing makes.
type workload struct {
	namespace, kind, name string
	// short is namespace/name if only one workload has that, else namespace/kind/name.
	short    string
	subjects []int
	// states are those of its pods.
	states map[state]int
}

// state is which of the cluster states something is in.
type state string

// The states. Scripts read them in JSON.
const (
	isInBoth state = ""
	isNew    state = "new"
	isGone   state = "gone"
)

func stateOf(s *reachability.Subject) state {
	switch {
	case !s.In[0]:
		return isNew
	case !s.In[1]:
		return isGone
	}
	return isInBoth
}

func newNames(d *reachability.Differences, w *states) *names {
	n := &names{Differences: d, of: make([]int, len(d.Subjects)), spaces: map[string]int{},
		several: make([]bool, len(d.Subjects))}
	found := map[workloadKey]*workload{}
	for i := range d.Subjects {
		s := &d.Subjects[i]
		if s.Pod == "" {
			if s.Domain == "" {
				n.ranges++
			}
			continue
		}
		n.pods++
		p := w[1].Pods[s.Pod]
		if !s.In[1] {
			p = w[0].Pods[s.Pod]
		}
		n.several[i] = p.StandsForWorkload()
		key := workloadKey{p.Namespace, npc.Workload{Kind: "Pod", Name: p.Name}}
		if p.Workload != nil {
			key.Workload = *p.Workload
		}
		at := found[key]
		if at == nil {
			at = &workload{namespace: key.namespace, kind: key.Kind, name: key.Name, states: map[state]int{}}
			found[key] = at
		}
		at.subjects = append(at.subjects, i)
		at.states[stateOf(s)]++
	}
	for _, at := range found {
		n.workloads = append(n.workloads, *at)
		n.spaces[at.namespace]++
	}
	slices.SortFunc(n.workloads, func(a, b workload) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name), cmp.Compare(a.kind, b.kind))
	})
	for i, v := range w {
		n.others[i] = sync.OnceValues(func() (*cluster.View, map[string]string) { return cluster.WithOthers(v) })
	}
	n.index()
	return n
}

// index names the workloads, and finds that of each subject.
func (n *names) index() {
	for i := range n.of {
		n.of[i] = -1
	}
	named := map[string]int{}
	for _, w := range n.workloads {
		named[npc.ObjectKey(w.namespace, w.name)]++
	}
	for i := range n.workloads {
		w := &n.workloads[i]
		for _, s := range w.subjects {
			n.of[s] = i
		}
		if w.short = npc.ObjectKey(w.namespace, w.name); named[w.short] > 1 {
			w.short = npc.ObjectKey(w.namespace, w.kind+"/"+w.name)
		}
	}
}

// lists are subjects by number of a line, or of a column.
type lists struct {
	members [][]int
	// pods and ranges count the members.
	pods, ranges []int
	// number is the list that has a subject; -1 if none has.
	number []int
}

// part is the subjects of some lists.
type part struct {
	*lists
	numbers []int
}

// first returns the first subject.
func (p part) first() []int {
	first := []int{}
	for _, n := range p.numbers {
		if m := p.members[n]; len(m) > 0 && (len(first) == 0 || m[0] < first[0]) {
			first = m[:1]
		}
	}
	return first
}

// alone returns the only subject of a part that has no connections with itself, or else -1, and whether any is a pod.
func (n *names) alone(p part) (only int, inside bool) {
	count := 0
	for _, number := range p.numbers {
		for _, s := range p.members[number] {
			only, inside = s, inside || n.of[s] >= 0
			count++
		}
	}
	if count > 1 || n.several[only] {
		only = -1
	}
	return only, inside
}

// newLists returns lists of those subjects that are wanted.
func (n *names) newLists(all [][]int, want func(subject int) bool) *lists {
	l := &lists{members: make([][]int, len(all)), pods: make([]int, len(all)), ranges: make([]int, len(all)),
		number: make([]int, len(n.of))}
	for i := range l.number {
		l.number[i] = -1
	}
	for i, members := range all {
		for _, s := range members {
			if !want(s) {
				continue
			}
			l.members[i] = append(l.members[i], s)
			l.number[s] = i
			if n.of[s] < 0 {
				l.ranges[i]++
			} else {
				l.pods[i]++
			}
		}
	}
	return l
}

// in reports whether a subject is in a namespace; the empty one stands for all.
func (n *names) in(subject int, namespace string) bool {
	return namespace == "" || n.of[subject] >= 0 && n.workloads[n.of[subject]].namespace == namespace
}

// pairing is sources and destinations that are asked about together.
type pairing struct {
	sources, destinations *lists
	// same holds for each list of sources the lists of destinations that have subjects in common with it.
	same [][]overlap
}

type overlap struct{ list, subjects int }

func (n *names) newPairing(lines [][]int, source, destination func(subject int) bool) *pairing {
	opens := func(s int) bool { return n.Subjects[s].Domain == "" && source(s) }
	p := &pairing{sources: n.newLists(lines, opens), destinations: n.newLists(n.Columns, destination)}
	for _, members := range p.sources.members {
		count := map[int]int{}
		for _, s := range members {
			if at := p.destinations.number[s]; at >= 0 && !n.several[s] {
				count[at]++
			}
		}
		var same []overlap
		for at, subjects := range count {
			same = append(same, overlap{at, subjects})
		}
		p.same = append(p.same, same)
	}
	return p
}

// pairings returns what the options ask about.
func (n *names) pairings(o Options) []*pairing {
	var lines [][]int
	for i := range n.Lines {
		lines = append(lines, n.Lines[i].Sources)
	}
	in := func(namespace string) func(int) bool { return func(s int) bool { return n.in(s, namespace) } }
	if o.Either == "" {
		return []*pairing{n.newPairing(lines, in(o.From), in(o.To))}
	}
	both := func(a, b string) func(int) bool { return func(s int) bool { return n.in(s, a) && n.in(s, b) } }
	return []*pairing{
		n.newPairing(lines, both(o.Either, o.From), in(o.To)),
		n.newPairing(lines, func(s int) bool { return n.in(s, o.From) && !n.in(s, o.Either) }, both(o.Either, o.To)),
	}
}

// group returns a group of what was gathered, and counts it.
func (p *pairing) group(g block) *group {
	out := &group{sources: part{p.sources, g.lines}, destinations: part{p.destinations, g.columns}, ports: g.ports}
	var pods, ranges int
	isThere := map[int]bool{}
	for _, c := range g.columns {
		pods, ranges = pods+p.destinations.pods[c], ranges+p.destinations.ranges[c]
		isThere[c] = true
	}
	for _, l := range g.lines {
		out.pods += p.sources.pods[l] * pods
		out.outside += p.sources.pods[l]*ranges + p.sources.ranges[l]*pods
		for _, same := range p.same[l] {
			if isThere[same.list] {
				out.pods -= same.subjects
			}
		}
	}
	return out
}
