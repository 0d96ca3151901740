package findings

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxMarkdown limits the characters of a report in markdown: comments of pull requests take little more.
const maxMarkdown = 60_000

// writeMarkdown writes the report for a comment of a pull request. All text of objects is within code, where it is
// neither markdown nor a mention.
func (r *Report) writeMarkdown(out *bytes.Buffer, o Options) {
	end := r.summary()
	left := maxMarkdown - 1000 - utf8.RuneCountInString(end)
	fmt.Fprintf(out, "**weave-npc: %s**\n\n", end)
	selected, omitted := r.selected(o.Limit)
	var items []string
	for _, c := range r.Cases {
		if c.Outcome == passed {
			continue
		}
		at := place(Finding{File: c.File, Line: c.Line})
		items = append(items, item(c.Outcome.String(), at, clean(c.Name+": "+c.Message), "", c.Detail))
	}
	cases := len(items)
	for _, f := range selected {
		items = append(items, item(f.Level.String(), place(f), f.text(), f.Rule, f.Detail))
	}
	leftOut := 0
	for i, text := range items {
		if utf8.RuneCountInString(text) > left {
			text, _, _ = strings.Cut(text, "\n") // without the detail
			text += "\n"
		}
		if left -= utf8.RuneCountInString(text); left < 0 {
			leftOut, omitted = max(cases-i, 0), omitted+len(items)-max(cases, i)
			break
		}
		out.WriteString(text)
	}
	if leftOut > 0 {
		fmt.Fprintf(out, "- ... and %d more that did not pass\n", leftOut)
	}
	if omitted > 0 {
		fmt.Fprintf(out, "- ... and %s\n", more(omitted))
	}
}

// item returns an item of a list. All but what must be known at once is folded.
func item(level, at, text, rule, detail string) string {
	line := "- **" + level + "**"
	if at = strings.TrimSuffix(at, ": "); at != "" {
		line += " " + code(at)
	}
	line += " " + code(text)
	if rule != "" {
		line += " (" + code(clean(rule)) + ")"
	}
	lines := cleanLines(detail)
	if len(lines) == 0 {
		return line + "\n"
	}
	fence := "```"
	for strings.Contains(detail, fence) {
		fence += "`"
	}
	return line + "\n  <details><summary>more</summary>\n\n  " + fence + "text\n  " +
		strings.Join(lines, "\n  ") + "\n  " + fence + "\n  </details>\n"
}

// code returns a text as code without Markdown syntax.
func code(text string) string {
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") {
		text = " " + text + " "
	}
	return fence + text + fence
}
