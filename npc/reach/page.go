package reach

import (
	_ "embed"
	"encoding/json"
	"html"
	"io"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/npc/explain"
)

//go:embed page.html
var pageSource string

// page is the data of the page's script. Lines of reasons that many cells share are in it once.
type page struct {
	Service string   `json:"service"`
	From    []string `json:"from"`
	To      []string `json:"to"`
	// Reach holds a letter for each cell: a allowed, d denied, p partly, n never, x not asked for; a text for each row.
	Reach []string `json:"reach"`
	// Reasons holds for each row and column the numbers of lines.
	Reasons [][][]int `json:"reasons"`
	Lines   []string  `json:"lines"`
	numbers map[string]int
}

// WritePage writes the matrix as one HTML page that needs nothing else. The names of objects, which may hold anything, reach it
// only as text.
func (m *Matrix) WritePage(out io.Writer) error {
	p := page{Service: m.relation.String(), From: names(m.From), To: names(m.To), numbers: map[string]int{}}
	for i := range m.From {
		letters, reasons := "", make([][]int, 0, len(m.To))
		for j := range m.To {
			if !m.asked(i, j) {
				letters, reasons = letters+"x", append(reasons, []int{})
				continue
			}
			letters += string(m.cell(i, j)[0])
			reasons = append(reasons, p.reason(m.verdicts(i, j)))
		}
		p.Reach, p.Reasons = append(p.Reach, letters), append(p.Reasons, reasons)
	}
	// The escapes of JSON are such that it can stand in a script. A template would do the same, and have the linker keep every method of every
	// type, most of them of the API that nobody calls: 23 MB, half of it in memory.
	data, err := json.Marshal(p)
	if err != nil {
		return errors.Wrap(err, "writing down the matrix")
	}
	_, err = strings.NewReplacer("{{service}}", html.EscapeString(p.Service), "{{data}}", string(data)).WriteString(out, pageSource)
	return errors.Wrap(err, "writing the page")
}

func names(rows []Row) (names []string) {
	for _, r := range rows {
		names = append(names, r.Name)
	}
	return names
}

// reason returns the numbers of the lines of verdicts.
func (p *page) reason(verdicts []explain.Verdict) []int {
	lines := strings.Split(strings.TrimSpace(explain.Text(verdicts)), "\n")
	out := make([]int, 0, len(lines))
	for _, line := range lines {
		n, ok := p.numbers[line]
		if !ok {
			n = len(p.Lines)
			p.numbers[line] = n
			p.Lines = append(p.Lines, line)
		}
		out = append(out, n)
	}
	return out
}
