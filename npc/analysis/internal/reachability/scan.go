package reachability

import (
	"math/bits"
	"slices"

	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// scan compares two cluster states for some sources and some destinations, service after service. From one to the next
// only those pods are asked whose rules begin or cease to match.
type scan struct {
	*subjects
	services []flow.Service
	// rows and columns are classes: sources, and destinations.
	rows, columns []int
	words         int // of a set of columns
	planes        [states][families]*plane
	timelines     *timelines
	// opens and closes hold what differs for the service, by row and column, and found the timeline of each pair.
	opens, closes []uint64
	found         []uint32
	// dirty are the words of rows that have to be compared again.
	dirty    []int
	isDirty  []bool
	askRows  [][]int // service -> rows whose egress may change there
	askCols  [][]int
	aloneRow []bool
	aloneCol endSet
	// excluded are pairs that are not compared, by row and column; nil without any.
	excluded []uint64
}

// plane is one cluster state in one family.
type plane struct {
	sources, destinations *evaluation
	// egress holds the columns that the policies of a row allow, ingress the rows that those of a column do.
	egress, ingress []endSet
	// reached is ingress by row.
	reached []uint64
	hasRow  []bool
	hasCol  endSet
	// verdicts are those of rows and columns that are asked about alone; nil without any.
	verdicts []uint64
}

func (s *subjects) newScan(services []flow.Service, rows, columns []int, t *timelines) *scan {
	w := &scan{subjects: s, services: services, rows: rows, columns: columns, words: (len(columns) + 63) / 64,
		timelines: t,
		aloneRow:  make([]bool, len(rows)), aloneCol: make(endSet, (len(columns)+63)/64)}
	size := len(rows) * w.words
	w.opens, w.closes, w.isDirty = make([]uint64, size), make([]uint64, size), make([]bool, size)
	w.found = make([]uint32, len(rows)*len(columns))
	anyAlone := false
	for i, class := range rows {
		w.aloneRow[i] = s.classes[class].alone()
		anyAlone = anyAlone || w.aloneRow[i]
	}
	for j, class := range columns {
		if s.classes[class].alone() {
			w.aloneCol[j/64] |= 1 << (j % 64)
			anyAlone = true
		}
	}
	for state := range states {
		for f := range families {
			w.planes[state][f] = w.newPlane(state, f)
			if anyAlone {
				w.planes[state][f].verdicts = make([]uint64, size)
			}
		}
	}
	w.exclude()
	w.schedule()
	return w
}

// newPlane returns a plane where no end reaches another.
func (w *scan) newPlane(state, family int) *plane {
	p := &plane{sources: w.evaluate(w.rows, state, family), destinations: w.evaluate(w.columns, state, family),
		reached: make([]uint64, len(w.rows)*w.words), hasCol: make(endSet, w.words)}
	for _, class := range w.rows {
		p.egress = append(p.egress, make(endSet, w.words))
		p.hasRow = append(p.hasRow, w.classes[class].has[state][family])
	}
	for j, class := range w.columns {
		p.ingress = append(p.ingress, p.sources.newSet())
		if w.classes[class].has[state][family] {
			p.hasCol[j/64] |= 1 << (j % 64)
		}
	}
	return p
}

// run finds the timelines of all pairs.
func (w *scan) run() {
	for k, s := range w.services {
		for state := range states {
			for f := range families {
				w.ask(w.planes[state][f], k, s)
			}
		}
		for state := range states {
			for f := range families {
				w.askAlone(w.planes[state][f], k, s)
			}
		}
		w.compare(k)
	}
}

// ask asks the pods whose rules may match otherwise than for the service before.
func (w *scan) ask(p *plane, k int, s flow.Service) {
	out, known := &Relation{evaluation: p.destinations, Service: s}, map[string]endSet{}
	for _, i := range w.askRows[k] {
		if !p.hasRow[i] {
			continue
		}
		var fit endSet
		if pod := p.sources.pod(i); pod != nil {
			fit = out.side(pod, npc.Egress, p.sources.choices[npc.Egress][i], known)
		}
		for word := range w.words {
			if p.egress[i].word(word) != fit.word(word) {
				w.mark(i*w.words + word)
			}
		}
		p.egress[i] = fit
	}
	in, known := &Relation{evaluation: p.sources, Service: s}, map[string]endSet{}
	for _, j := range w.askCols[k] {
		if !p.hasCol.has(j) {
			continue
		}
		var fit endSet
		if pod := p.destinations.pod(j); pod != nil {
			fit = in.side(pod, npc.Ingress, p.destinations.choices[npc.Ingress][j], known)
		}
		w.turn(p, j, fit)
	}
}

// turn replaces the rows that a column allows.
func (w *scan) turn(p *plane, j int, fit endSet) {
	bit := uint64(1) << (j % 64)
	for word := range (len(w.rows) + 63) / 64 {
		for changed := p.ingress[j].word(word) ^ fit.word(word); changed != 0; changed &= changed - 1 {
			i := word*64 + bits.TrailingZeros64(changed)
			if i >= len(w.rows) {
				break
			}
			at := i*w.words + j/64
			p.reached[at] ^= bit
			w.mark(at)
		}
	}
	p.ingress[j] = fit
}

// mark marks a word as one that has to be compared again.
func (w *scan) mark(at int) {
	if !w.isDirty[at] {
		w.isDirty[at] = true
		w.dirty = append(w.dirty, at)
	}
}

// askAlone asks about the pairs of those that have to be asked about alone.
func (w *scan) askAlone(p *plane, k int, s flow.Service) {
	if p.verdicts == nil {
		return
	}
	done := map[[2]int]bool{}
	pair := func(i, j int) {
		if done[[2]int{i, j}] || !p.hasRow[i] || !p.hasCol.has(j) || !w.aloneRow[i] && !w.aloneCol.has(j) {
			return
		}
		done[[2]int{i, j}] = true
		f := flow.Flow{From: p.sources.ends[i].End, To: p.destinations.ends[j].End, Service: s}
		at, bit := i*w.words+j/64, uint64(1)<<(j%64)
		if explain.Explain(p.sources.View, f).Allowed != (p.verdicts[at]&bit != 0) {
			p.verdicts[at] ^= bit
			w.mark(at)
		}
	}
	for _, i := range w.askRows[k] {
		for j := range w.columns {
			pair(i, j)
		}
	}
	for _, j := range w.askCols[k] {
		for i := range w.rows {
			pair(i, j)
		}
	}
}

// allowed returns a word of the columns that a row reaches.
func (w *scan) allowed(p *plane, i, word int) uint64 {
	if !p.hasRow[i] {
		return 0
	}
	at := i*w.words + word
	allowed := p.egress[i].word(word) & p.reached[at]
	if p.verdicts != nil {
		alone := w.aloneCol[word]
		if w.aloneRow[i] {
			alone = ^uint64(0)
		}
		allowed = allowed&^alone | p.verdicts[at]&alone
	}
	return allowed & p.hasCol[word]
}

// compared returns a word of the columns whose pairs with a row count as denied in a cluster state if it does not allow
// them: in the family, there is a flow, or one of the two is not in the state at all.
func (w *scan) compared(state, family, i, word int) uint64 {
	p, absent := w.planes[state][family], ^w.in(state, word)
	switch {
	case !w.classes[w.rows[i]].in[state]:
		return ^uint64(0)
	case p.hasRow[i]:
		return p.hasCol[word] | absent
	}
	return absent
}

// in returns a word of the columns that are in a cluster state.
func (w *scan) in(state, word int) (in uint64) {
	for j := word * 64; j < min(word*64+64, len(w.columns)); j++ {
		if w.classes[w.columns[j]].in[state] {
			in |= 1 << (j % 64)
		}
	}
	return in
}

// compare takes the marked words over into the timelines.
func (w *scan) compare(k int) {
	for _, at := range w.dirty {
		w.isDirty[at] = false
		i, word := at/w.words, at%w.words
		var opens, closes uint64
		for f := range families {
			was, is := w.allowed(w.planes[before][f], i, word), w.allowed(w.planes[after][f], i, word)
			if was != is {
				opens |= is &^ was & w.compared(before, f, i, word)
				closes |= was &^ is & w.compared(after, f, i, word)
			}
		}
		if w.excluded != nil {
			opens, closes = opens&^w.excluded[at], closes&^w.excluded[at]
		}
		changed := (opens ^ w.opens[at]) | (closes ^ w.closes[at])
		w.opens[at], w.closes[at] = opens, closes
		row := w.found[i*len(w.columns):]
		for ; changed != 0; changed &= changed - 1 {
			bit := bits.TrailingZeros64(changed)
			j := word*64 + bit
			row[j] = w.timelines.next(row[j], k, uint8(opens>>bit&1|closes>>bit&1<<1))
		}
	}
	w.dirty = w.dirty[:0]
}

// exclude finds the pairs of rows and columns that are pods and their own node.
func (w *scan) exclude() {
	for i, row := range w.rows {
		for j, column := range w.columns {
			a, b := &w.classes[row], &w.classes[column]
			if a.nodes+b.nodes == 0 || !slices.Contains(a.own, b.nodes) && !slices.Contains(b.own, a.nodes) {
				continue
			}
			if w.excluded == nil {
				w.excluded = make([]uint64, len(w.rows)*w.words)
			}
			w.excluded[i*w.words+j/64] |= 1 << (j % 64)
		}
	}
}
