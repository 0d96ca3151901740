package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/pkg/errors"
)

// Matrix says who reaches whom.
type Matrix struct {
	Service Service `json:"port"`
	// Names are the pods and addresses, in the order of rows and columns.
	Names []string `json:"names"`
	// Cells holds a cell for every source and, in it, every destination.
	Cells [][]Cell `json:"cells"`
}

// Cell is one pair of a matrix.
type Cell struct {
	Reach Reach `json:"reach"`
	// Verdicts are those of the families that both ends have.
	Verdicts []Verdict `json:"-"`
}

// Reach says whether one end reaches another.
type Reach string

// What a cell says.
const (
	Allowed Reach = "allowed"
	Denied  Reach = "denied"
	// Partly: it is allowed in one family and denied in the other.
	Partly Reach = "partly"
	// Never: the ends have no addresses of the same family.
	Never Reach = "never"
)

// Matrix asks, for every two of the pods and addresses that are named, whether one reaches the other. Pods without an address that is their
// own are left out.
func (w *World) Matrix(names []string, s Service) (Matrix, error) {
	m := Matrix{Service: s}
	var ends [][]End
	for _, name := range names {
		found, err := w.Find(name)
		if err != nil {
			if _, notAddr := netip.ParseAddr(name); notAddr != nil && w.hasPod(name) {
				continue
			}
			return m, err
		}
		m.Names, ends = append(m.Names, name), append(ends, found)
	}
	if len(ends) == 0 {
		return m, errors.New("there is no pod to ask about")
	}
	for _, from := range ends {
		row := make([]Cell, 0, len(ends))
		for _, to := range ends {
			row = append(row, w.cell(Flows(from, to, s)))
		}
		m.Cells = append(m.Cells, row)
	}
	return m, nil
}

func (w *World) hasPod(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods[name] != nil
}

func (w *World) cell(flows []Flow) Cell {
	if len(flows) == 0 {
		return Cell{Reach: Never}
	}
	c := Cell{}
	n := 0
	for _, f := range flows {
		v := w.Explain(f)
		c.Verdicts = append(c.Verdicts, v)
		if v.Allowed {
			n++
		}
	}
	switch n {
	case 0:
		c.Reach = Denied
	case len(flows):
		c.Reach = Allowed
	default:
		c.Reach = Partly
	}
	return c
}

// String is the matrix as a table of one character for each cell, with a row for each source.
func (m Matrix) String() string {
	width := 0
	for _, n := range m.Names {
		width = max(width, len(n))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, from the rows to the columns: ", m.Service)
	b.WriteString("+ allowed, . denied, ~ allowed in one family, blank: no family in common\n\n")
	fmt.Fprintf(&b, "%*s ", width+4, "")
	for i := range m.Names {
		fmt.Fprintf(&b, "%4d", i+1)
	}
	b.WriteString("\n")
	for i, n := range m.Names {
		line := fmt.Sprintf("%3d %-*s ", i+1, width, n)
		for _, c := range m.Cells[i] {
			line += fmt.Sprintf("%4s", map[Reach]string{Allowed: "+", Denied: ".", Partly: "~", Never: ""}[c.Reach])
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}
