// Package matrix shows reachability as a table of sources and destinations, in text, JSON or one HTML page.
//
//	m, err := matrix.New(view, matrix.Options{Service: service})
//	err = m.WriteText(os.Stdout)
//
//	Row          pods with the same labels that no policy distinguishes, or an address
//	Matrix       rows, columns and cells for one service
//	WritePage    a page that loads nothing else (page). It holds policies and what they see of pods as a document,
//	             not the cells: its scripts decide each cell, and show the reason on request, so that ten thousand
//	             pods on every port fit
//	document     what the scripts read, written down by policies, pods, services and alone
//
// The verdicts and the words are those of npc/analysis/explain.
package matrix

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc/analysis/internal/reachability"
	"github.com/weave-npc/weave-npc/npc/cluster"
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

// Matrix is the reachability between rows of pods.
type Matrix struct {
	From, To []Row
	// Omitted are pods that are in no row, because they own none of their addresses.
	Omitted []string
	// relations are those of all that is possible. Where they differ, it is unknown what holds.
	relations []*reachability.Relation
	either    string
	classes   int
	lines     map[int][]reachability.Cell // class -> whether it reaches each other class that was asked about
}

// New returns which pods and addresses of a view reach which. The domain names that policies name have columns. Whether
// other addresses are theirs is not known.
func New(v *cluster.View, o Options) (*Matrix, error) {
	asked, err := addresses(o.Addresses)
	if err != nil {
		return nil, err
	}
	views, domains := []*cluster.View{v}, reachability.Domains(asked, nil, v)
	if domains != nil {
		views = learned(v, asked, domains)
	}
	p, m, err := newRows(o, asked, nil, domains, views...)
	if err != nil {
		return nil, err
	}
	for of := range views {
		m.relations = append(m.relations, p.Relation(o.Service, of))
	}
	return m, nil
}

// learned returns views with addresses for domain names. If there are other addresses, there are two: in the first, these
// have none of the names, and in the second all.
func learned(v *cluster.View, addrs []netip.Addr, domains map[netip.Addr][]string) []*cluster.View {
	views := []*cluster.View{cluster.WithLearned(v, domains)}
	if len(addrs) == 0 {
		return views
	}
	all := maps.Clone(domains)
	for _, a := range addrs {
		all[a] = slices.Concat(slices.Collect(maps.Values(domains))...)
	}
	return append(views, cluster.WithLearned(v, all))
}

// newRows returns the rows and columns of a matrix, of pods and some addresses, and the partition that they are of. The
// domain names of other addresses are columns. Where a namespace is selected, of addresses those alone count that are
// asked for.
func newRows(
	o Options, asked, more []netip.Addr, domains map[netip.Addr][]string, of ...*cluster.View,
) (*reachability.Partition, *Matrix, error) {
	v := of[0]
	addrs := slices.Concat(asked, more, slices.SortedFunc(maps.Keys(domains), netip.Addr.Compare))
	pods := v.PodNames("")
	if o.From != "" && o.To != "" {
		pods = v.PodNames(o.From)
		if o.From != o.To {
			pods = append(pods, v.PodNames(o.To)...)
		}
	}
	p := reachability.NewPartition(pods, addrs, of...)
	m := &Matrix{Omitted: p.Omitted(), either: o.Either, classes: len(p.Classes()),
		lines: map[int][]reachability.Cell{}}
	for _, r := range Rows(v, p.Classes(), o.EachPod) {
		a := p.Classes()[r.class].Addr
		in := func(namespace string) bool {
			return namespace == "" || r.namespace == namespace || slices.Contains(asked, a)
		}
		if names := domains[a]; names != nil {
			r.Name = names[0]
		} else if in(o.From) {
			m.From = append(m.From, r)
		}
		if in(o.To) {
			m.To = append(m.To, r)
		}
	}
	if len(m.From) == 0 || len(m.To) == 0 {
		return nil, nil, errors.New("there is no pod to ask about")
	}
	return p, m, nil
}

// asked reports whether a pair is in the matrix.
func (m *Matrix) asked(from, to int) bool {
	return m.either == "" || m.From[from].namespace == m.either || m.To[to].namespace == m.either
}

// maxLines is the number of classes above which no lines are kept.
const maxLines = 2048

// cell returns whether a row reaches a column. If both are the same, that is whether one of its pods reaches another
// one. A pod that stands for no workload always reaches itself.
func (m *Matrix) cell(from, to int) reachability.Cell {
	a, b := m.From[from], m.To[to]
	if a.Name == b.Name && !a.several {
		return reachability.CellAllowed
	}
	if m.classes > maxLines {
		return m.reach(a.class, b.class)
	}
	line, ok := m.lines[a.class]
	if !ok {
		line = make([]reachability.Cell, m.classes)
		m.lines[a.class] = line
	}
	if line[b.class] == "" {
		line[b.class] = m.reach(a.class, b.class)
	}
	return line[b.class]
}

// reach returns whether a class reaches another one.
func (m *Matrix) reach(from, to int) reachability.Cell {
	cell := m.relations[0].Reach(from, to)
	for _, r := range m.relations[1:] {
		if r.Reach(from, to) != cell {
			return reachability.CellUnknown
		}
	}
	return cell
}

// sign returns a cell as the text table shows it.
func sign(c reachability.Cell) string {
	switch c {
	case reachability.CellAllowed:
		return "+"
	case reachability.CellDenied:
		return "."
	case reachability.CellPartly:
		return "~"
	case reachability.CellUnknown:
		return "?"
	}
	return ""
}

// textWriter writes to a buffer. Its Flush returns the first error of any write.
type textWriter struct{ *bufio.Writer }

func (w textWriter) put(text string) { _, _ = w.WriteString(text) }

func (w textWriter) printf(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// WriteText writes the matrix as a table of one character for each cell, with a row for each source. For pairs with one
// namespace at either end there are two: from it to all, and to it from all others.
func (m *Matrix) WriteText(out io.Writer) error {
	b := textWriter{bufio.NewWriter(out)}
	b.printf("%s, from the rows to the columns: ", m.relations[0].Service)
	b.put("+ allowed, . denied, ~ allowed in one family, blank: no family in common\n")
	if m.relations[0].Unreadable.Any() || m.relations[0].Learned != nil {
		b.put("? unknown: what decides cannot be read, or a domain name does\n")
	}
	if slices.ContainsFunc(slices.Concat(m.From, m.To), func(r Row) bool { return len(r.Pods) > 1 }) {
		b.put("pods with the same labels that no policy distinguishes are one row; --pods gives each its own\n")
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

func (m *Matrix) writeTable(b textWriter, rows, columns []int) {
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
			sign := sign(m.cell(i, j))
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

// WriteJSON writes the matrix with the names of rows and columns, their pods, and a word for each cell, or null for a
// pair that is not in it.
func (m *Matrix) WriteJSON(out io.Writer) error {
	b := textWriter{bufio.NewWriter(out)}
	head, err := json.Marshal(map[string]any{"port": m.relations[0].Service, "from": m.From, "to": m.To})
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
