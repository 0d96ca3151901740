package explain

import (
	_ "embed"
	"encoding/json"
	"html"
	"io"
	"strings"

	"github.com/pkg/errors"
)

//go:embed page.html
var pageSource string

// page is what the page's script is given. The lines of reasons that many cells share are there once.
type page struct {
	Service string   `json:"service"`
	Names   []string `json:"names"`
	// Reach holds a letter for each cell: a allowed, d denied, p partly, n never; a text for each row.
	Reach []string `json:"reach"`
	// Reasons holds for each row and column the numbers of lines.
	Reasons [][][]int `json:"reasons"`
	Lines   []string  `json:"lines"`
}

// WritePage writes the matrix as one HTML page that needs nothing else. The names of objects, which may hold anything, reach it
// only as text.
func (m Matrix) WritePage(out io.Writer) error {
	p := page{Service: m.Service.String(), Names: m.Names}
	numbers := map[string]int{}
	for _, row := range m.Cells {
		letters, reasons := "", make([][]int, 0, len(row))
		for _, c := range row {
			letters += string(c.Reach[0])
			var reason []int
			for _, line := range strings.Split(strings.TrimSpace(Text(c.Verdicts)), "\n") {
				n, ok := numbers[line]
				if !ok {
					n = len(p.Lines)
					numbers[line] = n
					p.Lines = append(p.Lines, line)
				}
				reason = append(reason, n)
			}
			reasons = append(reasons, reason)
		}
		p.Reach, p.Reasons = append(p.Reach, letters), append(p.Reasons, reasons)
	}
	// The escapes of JSON are such that it can stand in a script. A template would do the same, and have the linker keep every method of every
	// type, most of them of the API that nobody calls: 23 MB, of which half would be in memory.
	data, err := json.Marshal(p)
	if err != nil {
		return errors.Wrap(err, "writing down the matrix")
	}
	_, err = strings.NewReplacer("{{service}}", html.EscapeString(p.Service), "{{data}}", string(data)).WriteString(out, pageSource)
	return errors.Wrap(err, "writing the page")
}
