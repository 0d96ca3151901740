package reachability

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/weave-npc/weave-npc/npc/cluster"
)

// Differences is how two cluster states differ: what opens and what closes between any two subjects. It also has pairs
// of a subject with itself, as if there were another pod like it. Callers ignore them.
type Differences struct {
	Subjects []Subject
	// Omitted are pods that are no subjects in a cluster state, before or after, because they own none of their
	// addresses there.
	Omitted [2][]string
	// Changes are what opens and closes. The first is nothing.
	Changes []PortChange
	// Lines are sources that change alike. Columns are destinations that no line distinguishes. Both are indexes of
	// Subjects.
	Lines   []Line
	Columns [][]int
}

// Line is sources that change alike.
type Line struct {
	Sources []int
	found   []uint32
}

// Changes calls found for each column with a change, in order.
func (l *Line) Changes(found func(column, change int)) {
	for j, change := range l.found {
		if change != 0 {
			found(j, int(change))
		}
	}
}

// maxPairs limits the pairs of classes that are compared at a time.
const maxPairs = 16 << 20

// Compare compares two cluster states. It compares each pair of subjects on each range of ports that all policies treat
// alike. For two subjects that are in both states, only the families count that both states have for them.
func Compare(before, after *cluster.View) *Differences {
	s := newSubjects(before, after)
	sources, destinations := s.alikeGroups()
	d := &Differences{Subjects: s.all, Omitted: s.omitted}
	var columns []int
	for _, group := range destinations {
		columns = append(columns, group[0])
		d.Columns = append(d.Columns, s.members(group))
	}
	t := &timelines{steps: make([]step, 1), known: map[step]uint32{}}
	services := (&Partition{views: s.views[:]}).Services()
	lines := map[[sha256.Size]byte]int{}
	at := 0
	for rows := range slices.Chunk(firsts(sources), max(64, maxPairs/max(1, len(columns)))) {
		w := s.newScan(services, rows, columns, t)
		w.run()
		for i := range rows {
			d.addLine(lines, w.found[i*len(columns):(i+1)*len(columns)], s.members(sources[at]))
			at++
		}
	}
	d.Changes = t.changes(services)
	for i := range d.Lines {
		slices.Sort(d.Lines[i].Sources)
	}
	return d
}

func firsts(groups [][]int) (out []int) {
	for _, g := range groups {
		out = append(out, g[0])
	}
	return out
}

// members returns the subjects of some classes, sorted.
func (s *subjects) members(classes []int) (out []int) {
	for _, c := range classes {
		out = append(out, s.classes[c].members...)
	}
	slices.Sort(out)
	return out
}

// addLine adds sources, unless nothing changes for them.
func (d *Differences) addLine(lines map[[sha256.Size]byte]int, found []uint32, sources []int) {
	sum, some := sha256.New(), false
	var text [4]byte
	for _, change := range found {
		some = some || change != 0
		binary.LittleEndian.PutUint32(text[:], change)
		_, _ = sum.Write(text[:])
	}
	if !some {
		return
	}
	at, ok := lines[[sha256.Size]byte(sum.Sum(nil))]
	if !ok {
		at = len(d.Lines)
		lines[[sha256.Size]byte(sum.Sum(nil))] = at
		d.Lines = append(d.Lines, Line{found: slices.Clone(found)})
	}
	d.Lines[at].Sources = append(d.Lines[at].Sources, sources...)
}
