package diff

import (
	"hash/fnv"
	"slices"

	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
)

// block is lines and columns. The same ports open, or close, between each line and each column.
type block struct {
	lines, columns []int
	ports          Ports
}

// collector puts columns of one line together that change alike, and lines with the same columns.
type collector struct {
	ports  []Ports
	number []int            // change -> its ports; 0 is none
	known  map[uint64][]int // hash of ports and columns -> groups
	of     []int            // group -> its ports
	out    []block
}

// findBlocks returns what opens, or what closes. Each pair of a line and a column is in one group at most.
func findBlocks(d *reachability.Differences, opens bool) []block {
	g := &collector{ports: make([]Ports, 1), known: map[uint64][]int{}}
	numbers := map[string]int{"": 0}
	for _, c := range d.Changes {
		ports := Ports(c.Closes)
		if opens {
			ports = c.Opens
		}
		key := ports.key()
		n, ok := numbers[key]
		if !ok {
			n = len(g.ports)
			numbers[key] = n
			g.ports = append(g.ports, ports)
		}
		g.number = append(g.number, n)
	}
	for i := range d.Lines {
		g.line(i, &d.Lines[i])
	}
	return g.out
}

// line adds the columns of a line.
func (g *collector) line(i int, l *reachability.Line) {
	type cell struct{ ports, column int }
	var cells []cell
	l.Changes(func(column, change int) {
		if n := g.number[change]; n != 0 {
			cells = append(cells, cell{n, column})
		}
	})
	slices.SortStableFunc(cells, func(a, b cell) int { return a.ports - b.ports })
	var columns []int
	for at, c := range cells {
		columns = append(columns, c.column)
		if at+1 == len(cells) || cells[at+1].ports != c.ports {
			g.add(i, c.ports, columns)
			columns = columns[:0]
		}
	}
}

// add adds a line to the group of its ports and columns.
func (g *collector) add(line, ports int, columns []int) {
	sum := fnv.New64a()
	var text [4]byte
	for _, n := range append(columns[:len(columns):len(columns)], ports) {
		text[0], text[1], text[2], text[3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
		_, _ = sum.Write(text[:])
	}
	key := sum.Sum64()
	for _, n := range g.known[key] {
		if g.of[n] == ports && slices.Equal(g.out[n].columns, columns) {
			g.out[n].lines = append(g.out[n].lines, line)
			return
		}
	}
	g.known[key] = append(g.known[key], len(g.out))
	g.of = append(g.of, ports)
	g.out = append(g.out, block{[]int{line}, slices.Clone(columns), g.ports[ports]})
}
