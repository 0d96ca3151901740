package output

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

const (
	// gap is the number of spaces between two columns.
	gap = 2
	// narrowest is how narrow a column is made at most.
	narrowest = 16
)

// widthOf returns how wide the terminal is that out writes to; 0 if that is none.
func widthOf(out io.Writer) int {
	type wrapper interface{ Raw() io.Writer }
	for w, is := out.(wrapper); is; w, is = out.(wrapper) {
		out = w.Raw()
	}
	f, is := out.(*os.File)
	if !is {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// fit continues cells in further rows, so that the lines of a table are no wider than a terminal, if that is possible.
// Width 0 stands for no limit.
func fit(rows [][]string, width int) [][]string {
	widths := widthsOf(rows)
	if width == 0 || !narrow(widths, width) {
		return rows
	}
	var out [][]string
	for _, r := range rows {
		var cells [][]string // lines of each cell
		height := 1
		for i, text := range r {
			lines := []string{text}
			if len(r) > 1 {
				lines = wrap(text, widths[i])
			}
			cells, height = append(cells, lines), max(height, len(lines))
		}
		for n := range height {
			line := make([]string, len(r))
			for i, lines := range cells {
				if n < len(lines) {
					line[i] = lines[n]
				}
			}
			out = append(out, line)
		}
	}
	return out
}

// widthsOf returns the widths of the columns. A cell that is alone in its row is of none.
func widthsOf(rows [][]string) (widths []int) {
	for _, r := range rows {
		for i, text := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if len(r) > 1 {
				widths[i] = max(widths[i], utf8.RuneCountInString(text))
			}
		}
	}
	return widths
}

// narrow makes the widest columns narrower until the table has a width. It reports whether any was too wide.
func narrow(widths []int, width int) (changed bool) {
	for total := sum(widths); total > width; total = sum(widths) {
		widest := slices.Index(widths, slices.Max(widths))
		if widths[widest] <= narrowest {
			return changed
		}
		widths[widest]--
		changed = true
	}
	return changed
}

func sum(widths []int) int {
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	return total
}

// words matches a word with the spaces and commas after it.
var words = regexp.MustCompile(`[^ ,]*[ ,]+|[^ ,]+`)

// wrap breaks a text into lines after spaces and commas. What has neither stays whole.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range words.FindAllString(text, -1) {
		if line != "" && utf8.RuneCountInString(line+strings.TrimRight(word, " ")) > width {
			lines, line = append(lines, strings.TrimRight(line, " ")), ""
		}
		line += word
	}
	return append(lines, strings.TrimRight(line, " "))
}
