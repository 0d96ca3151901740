package reach

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc/explain"
)

// Options say what a matrix is about.
type Options struct {
	Service explain.Service
	// Addresses are asked about besides the pods, as sources and as destinations.
	Addresses []string
	// From and To are the namespaces of sources and of destinations; empty for all.
	From, To string
	// Either is the namespace that the source or the destination is in; empty for all.
	Either string
	// EachPod gives each pod a row of its own.
	EachPod bool
}

// Matrix is who reaches whom.
type Matrix struct {
	From, To []Row
	// Left are pods that were left out, as they have no address that is their own.
	Left     []string
	relation *relation
	either   string
	lines    map[int][]cell // class -> what it reaches
}

// cell is whether one end reaches another.
type cell string

// The values of cells.
const (
	cellAllowed cell = "allowed"
	cellDenied  cell = "denied"
	// cellPartly: it is allowed in one family and denied in the other.
	cellPartly cell = "partly"
	// cellNever: the ends have no addresses of the same family.
	cellNever cell = "never"
)

// NewMatrix asks which pods and addresses reach which. The world must not be changed afterwards.
func NewMatrix(w *explain.World, o Options) (*Matrix, error) {
	addrs, bad := addresses(o.Addresses)
	if bad != "" {
		return nil, errors.Errorf("%q is no address", bad)
	}
	pods := w.Pods("")
	if o.From != "" && o.To != "" {
		pods = w.Pods(o.From)
		if o.From != o.To {
			pods = append(pods, w.Pods(o.To)...)
		}
	}
	p := newPartition(pods, addrs, w)
	m := &Matrix{Left: p.Left, either: o.Either, lines: map[int][]cell{}, relation: p.judge(p.worlds[0]).relation(o.Service)}
	for _, r := range p.rows(o.EachPod) {
		if o.From == "" || r.namespace == "" || r.namespace == o.From {
			m.From = append(m.From, r)
		}
		if o.To == "" || r.namespace == "" || r.namespace == o.To {
			m.To = append(m.To, r)
		}
	}
	if len(m.From) == 0 || len(m.To) == 0 {
		return nil, errors.New("there is no pod to ask about")
	}
	return m, nil
}

// asked reports whether a pair is among those that were asked for.
func (m *Matrix) asked(from, to int) bool {
	return m.either == "" || m.From[from].namespace == m.either || m.To[to].namespace == m.either
}

// maxLines is how many classes there are at most whose lines are kept.
const maxLines = 2048

// cell returns whether a row reaches a column: of a row with itself, whether one of its pods reaches another, or itself if it is the only one.
func (m *Matrix) cell(from, to int) cell {
	a, b := m.From[from], m.To[to]
	if a.Name == b.Name && len(a.Pods) < 2 {
		return cellAllowed
	}
	if len(m.relation.Classes) > maxLines {
		return m.relation.reach(a.class, b.class)
	}
	line, ok := m.lines[a.class]
	if !ok {
		line = make([]cell, len(m.relation.Classes))
		m.lines[a.class] = line
	}
	if line[b.class] == "" {
		line[b.class] = m.relation.reach(a.class, b.class)
	}
	return line[b.class]
}

// verdicts returns the verdicts of a pair of rows, by the example of their first pods, in the families that both have.
func (m *Matrix) verdicts(from, to int) ([]explain.Verdict, error) {
	a, b := m.From[from], m.To[to]
	source, destination := a.Name, b.Name
	if len(a.Pods) > 0 {
		source = a.Pods[0]
	}
	if len(b.Pods) > 0 {
		destination = b.Pods[0]
		if source == destination && len(b.Pods) > 1 {
			destination = b.Pods[1]
		}
	}
	sources, err := m.relation.Find(source)
	if err != nil {
		return nil, err
	}
	destinations, err := m.relation.Find(destination)
	if err != nil {
		return nil, err
	}
	var out []explain.Verdict
	for _, f := range explain.Flows(sources, destinations, m.relation.Service) {
		out = append(out, m.relation.Explain(f))
	}
	return out, nil
}

// sign returns the cell as the table has it.
func (c cell) sign() string {
	switch c {
	case cellAllowed:
		return "+"
	case cellDenied:
		return "."
	case cellPartly:
		return "~"
	}
	return ""
}

// writer writes to a buffer, whose Flush returns the first error of all that was written.
type writer struct{ *bufio.Writer }

func (w writer) put(text string) { _, _ = w.WriteString(text) }

func (w writer) printf(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// WriteText writes the matrix as a table of one character for each cell, with a row for each source. For pairs with one namespace at either end
// there are two: from it to all, and to it from all others.
func (m *Matrix) WriteText(out io.Writer) error {
	b := writer{bufio.NewWriter(out)}
	b.printf("%s, from the rows to the columns: ", m.relation.Service)
	b.put("+ allowed, . denied, ~ allowed in one family, blank: no family in common\n")
	if slices.ContainsFunc(slices.Concat(m.From, m.To), func(r Row) bool { return len(r.Pods) > 1 }) {
		b.put("pods with the same labels that no policy tells apart are one row; --pods gives each its own\n")
	}
	var within, others, all []int
	for i, r := range m.From {
		if r.namespace == m.either && m.either != "" {
			within = append(within, i)
		} else {
			others = append(others, i)
		}
	}
	for i := range m.To {
		all = append(all, i)
	}
	if m.either == "" {
		m.writeTable(b, others, all)
	} else {
		b.printf("\nfrom %s:\n", m.either)
		m.writeTable(b, within, all)
		if len(others) > 0 {
			b.printf("\nto %s, from all others:\n", m.either)
			m.writeTable(b, others, within)
		}
	}
	return errors.Wrap(b.Flush(), "writing")
}

func (m *Matrix) writeTable(b writer, rows, columns []int) {
	width, digits := 0, max(3, len(strconv.Itoa(len(rows))))
	for _, i := range rows {
		width = max(width, len(m.From[i].Name))
	}
	b.put("\n")
	column := max(4, len(strconv.Itoa(len(columns)))+1)
	// Columns of a matrix whose rows are others have names of their own.
	same := slices.EqualFunc(rows, columns, func(i, j int) bool { return m.From[i].Name == m.To[j].Name })
	if !same {
		for n, j := range columns {
			b.printf("column %d: %s\n", n+1, m.To[j].Name)
		}
		b.put("\n")
	}
	b.printf("%*s ", width+digits+1, "")
	for n := range columns {
		b.printf("%*d", column, n+1)
	}
	b.put("\n")
	blank := strings.Repeat(" ", column)
	for n, i := range rows {
		b.printf("%*d %-*s ", digits, n+1, width, m.From[i].Name)
		pending := 0 // blanks that are written if something follows
		for _, j := range columns {
			sign := m.cell(i, j).sign()
			if sign == "" {
				pending++
				continue
			}
			for ; pending > 0; pending-- {
				b.put(blank)
			}
			b.put(blank[1:])
			b.put(sign)
		}
		b.put("\n")
	}
}

// WriteJSON writes the matrix with the names of rows and columns, their pods, and a word for each cell, or null for a pair that was not asked for.
func (m *Matrix) WriteJSON(out io.Writer) error {
	b := writer{bufio.NewWriter(out)}
	head, err := json.Marshal(map[string]any{"port": m.relation.Service, "from": m.From, "to": m.To})
	if err != nil {
		return errors.Wrap(err, "writing JSON")
	}
	b.put(string(head[:len(head)-1]))
	b.put(`,"cells":[`)
	for i := range m.From {
		if i > 0 {
			b.put(",")
		}
		b.put("\n[")
		for j := range m.To {
			if j > 0 {
				b.put(",")
			}
			if !m.asked(i, j) {
				b.put("null")
				continue
			}
			b.put(`"`)
			b.put(string(m.cell(i, j)))
			b.put(`"`)
		}
		b.put("]")
	}
	b.put("\n]}\n")
	return errors.Wrap(b.Flush(), "writing JSON")
}
