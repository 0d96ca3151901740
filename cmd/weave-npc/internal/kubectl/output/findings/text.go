package findings

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/weave-npc/weave-npc/internal/spelling"
)

// writeText writes the cases and the findings as compilers do, and a line that counts them.
func (r *Report) writeText(out *bytes.Buffer, o Options) {
	for _, c := range r.Cases {
		fmt.Fprintf(out, "%s: %s", c.Outcome, clean(c.Name))
		if c.Message != "" {
			fmt.Fprintf(out, ": %s", clean(c.Message))
		}
		fmt.Fprintln(out)
		writeDetail(out, c.Detail)
	}
	selected, omitted := r.selected(o.Limit)
	for _, f := range selected {
		fmt.Fprintf(out, "%s%s: %s [%s]\n", place(f), f.Level, f.text(), clean(f.Rule))
		writeDetail(out, f.Detail)
	}
	if omitted > 0 {
		fmt.Fprintf(out, "... and %s\n", more(omitted))
	}
	fmt.Fprintln(out, r.summary())
}

// text returns the object and the message.
func (f Finding) text() string {
	if about := f.Object.String(); about != "" {
		return clean(about + ": " + f.Message)
	}
	return clean(f.Message)
}

func writeDetail(out *bytes.Buffer, detail string) {
	for _, line := range cleanLines(detail) {
		fmt.Fprintln(out, "    "+line)
	}
}

// place returns the file and the line as the beginning of a line of text.
func place(f Finding) string {
	switch {
	case f.File == "":
		return ""
	case f.Line == 0:
		return clean(f.File) + ": "
	}
	return fmt.Sprintf("%s:%d: ", clean(f.File), f.Line)
}

func more(n int) string {
	if n == 1 {
		return "1 more finding"
	}
	return fmt.Sprintf("%d more findings", n)
}

// summary counts the cases and the findings.
func (r *Report) summary() string {
	var parts []string
	if len(r.Cases) > 0 {
		n := r.outcomes()
		parts = append(parts, fmt.Sprintf("%d of %d %s passed", n[passed], len(r.Cases), r.suite()))
		if n[skipped] > 0 {
			parts = append(parts, fmt.Sprintf("%d skipped", n[skipped]))
		}
	}
	levels := r.levels()
	for l := Error; ; l-- {
		if n := levels[l]; n > 0 {
			parts = append(parts, spelling.Count(n, l.String()))
		}
		if l == Note {
			break
		}
	}
	if len(r.Findings) == 0 && (len(r.Rules) > 0 || len(r.Cases) == 0) {
		parts = append(parts, "no findings")
	}
	return strings.Join(parts, ", ")
}
