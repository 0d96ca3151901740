package output

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/pkg/errors"
)

// JSON writes a value as indented JSON.
func JSON(out io.Writer, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return errors.Wrap(err, "writing JSON")
	}
	_, err = fmt.Fprintln(out, string(text))
	return errors.Wrap(err, "writing JSON")
}

// Table writes rows of cells below a head, aligned. On a terminal they are no wider than that, if that is possible.
func Table(out io.Writer, head string, rows [][]string) error {
	return IndentedTable(out, "", head, rows)
}

// IndentedTable is Table with something before each line.
func IndentedTable(out io.Writer, indent, head string, rows [][]string) error {
	width := widthOf(out)
	if width > 0 {
		width = max(width-len(indent), 1)
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, gap, ' ', 0)
	for _, r := range fit(append([][]string{strings.Fields(head)}, rows...), width) {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	if err := t.Flush(); err != nil {
		return errors.Wrap(err, "writing")
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(out, indent+strings.TrimRight(line, " \n")); err != nil {
			return errors.Wrap(err, "writing")
		}
	}
	return nil
}

// orDash returns the text of a cell for some words, a dash if there are none.
func orDash(words []string) string {
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ",")
}
