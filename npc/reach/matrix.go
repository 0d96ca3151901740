// Package reach finds out which pods and addresses reach which, for all pairs at once. Pods that no policy distinguishes are one class, and are
// evaluated once.
//
//	partition    pods and addresses by class, in one or more views of a cluster
//	evaluation   the policies of one view, evaluated for the ends of a partition
//	relation     which ends allow which others, for one service
//	Matrix, Effects   what is made of relations
//
// Its verdicts are those of npc/explain. It does not know why a flow is denied.
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

	"github.com/weave-npc/weave-npc/npc/cluster"
	"github.com/weave-npc/weave-npc/npc/explain"
	"github.com/weave-npc/weave-npc/npc/flow"
)

// Options select what a matrix is about.
type Options struct {
	Service flow.Service
	// Addresses are sources and destinations in addition to the pods.
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
	// Omitted are pods that are in no row, because they own none of their addresses.
	Omitted  []string
	relation *relation
	either   string
	lines    map[int][]cell // class -> whether it reaches each other class, as far as that was asked
}

// NewMatrix returns which pods and addresses of a view reach which.
func NewMatrix(v *cluster.View, o Options) (*Matrix, error) {
	addrs, bad := addresses(o.Addresses)
	if bad != "" {
		return nil, errors.Errorf("%q is no address", bad)
	}
	pods := v.PodNames("")
	if o.From != "" && o.To != "" {
		pods = v.PodNames(o.From)
		if o.From != o.To {
			pods = append(pods, v.PodNames(o.To)...)
		}
	}
	p := newPartition(pods, addrs, v)
	m := &Matrix{Omitted: p.omitted, either: o.Either, lines: map[int][]cell{}, relation: p.evaluate(p.views[0]).relation(o.Service)}
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

// asked reports whether a pair is in the matrix.
func (m *Matrix) asked(from, to int) bool {
	return m.either == "" || m.From[from].namespace == m.either || m.To[to].namespace == m.either
}

// maxLines is the number of classes above which no lines are kept.
const maxLines = 2048

// cell returns whether a row reaches a column. If both are the same, that is whether one of its pods reaches another one, or its only pod itself.
func (m *Matrix) cell(from, to int) cell {
	a, b := m.From[from], m.To[to]
	if a.Name == b.Name && len(a.Pods) < 2 {
		return cellAllowed
	}
	if len(m.relation.classes) > maxLines {
		return m.relation.reach(a.class, b.class)
	}
	line, ok := m.lines[a.class]
	if !ok {
		line = make([]cell, len(m.relation.classes))
		m.lines[a.class] = line
	}
	if line[b.class] == "" {
		line[b.class] = m.relation.reach(a.class, b.class)
	}
	return line[b.class]
}

// verdicts returns the verdicts for the first pods of two rows, in the families that both have.
func (m *Matrix) verdicts(from, to int) []explain.Verdict {
	a, b := m.From[from], m.To[to]
	sources, destinations := m.ends(a, 0), m.ends(b, 0)
	if a.Name == b.Name && len(b.Pods) > 1 {
		destinations = m.ends(b, 1)
	}
	var out []explain.Verdict
	for _, f := range flow.Between(sources, destinations, m.relation.Service) {
		out = append(out, explain.Explain(m.relation.View, f))
	}
	return out
}

// ends returns the ends of one of a row's pods, or of its address.
func (m *Matrix) ends(r Row, pod int) []flow.End {
	if len(r.Pods) == 0 {
		return []flow.End{{Addr: m.relation.classes[r.class].addr}}
	}
	return m.relation.OwnedEnds(r.Pods[pod])
}

// sign returns the cell as the text table shows it.
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

// writer writes to a buffer. Its Flush returns the first error of any write.
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

// WriteJSON writes the matrix with the names of rows and columns, their pods, and a word for each cell, or null for a pair that is not in it.
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
