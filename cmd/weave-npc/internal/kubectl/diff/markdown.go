package diff

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/output"
	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/analysis/diff"
)

// maxMarkdown limits the characters of a comment. Hosts of pull requests take little more.
const maxMarkdown = 60_000

// markdown returns the report for a comment of a pull request: a summary, a table of what opens and closes, and the
// details folded.
func (r *report) markdown() string {
	head := fmt.Sprintf("**weave-npc diff %s %s: %s**\n", output.Code(r.before), output.Code(r.after), output.Escaped(r.summary()))
	if r.Same() {
		return head
	}
	head += "\n| | from | to | ports | pairs |\n|---|---|---|---|---|\n"
	const foot = "\n<details><summary>what decides</summary>\n\n"
	const end = "\n</details>\n"
	left := maxMarkdown - utf8.RuneCountInString(head+foot+end) - 500
	var rows, details strings.Builder
	cut := 0 // the number of groups that are not shown completely
	for _, p := range r.parts() {
		groups := p.Groups(r.limit)
		cut += p.Len() - len(groups)
		for _, g := range groups {
			row := tableRow(p, &g)
			if utf8.RuneCountInString(row) > left {
				cut++
				continue
			}
			rows.WriteString(row)
			left -= utf8.RuneCountInString(row)
			if text := detail(p, &g); utf8.RuneCountInString(text) <= left/2 {
				details.WriteString(text)
				left -= utf8.RuneCountInString(text)
			}
		}
	}
	out := head + rows.String()
	if cut > 0 {
		out += fmt.Sprintf("\n%s not shown here: weave-npc diff --limit 0 lists all.\n", spelling.Count(cut, "group"))
	}
	return out + foot + details.String() + end
}

func tableRow(p part, g *diff.Group) string {
	return fmt.Sprintf("| %s %s | %s | %s | %s | %s |\n",
		map[string]string{onOpens: "🟢 **+**", onCloses: "🔴 **−**"}[p.name], p.name,
		output.Code(g.From.Text), output.Code(g.To.Text), output.Code(g.Ports.String()), output.Escaped(pairs(g.Pods, g.Outside)))
}

// detail returns what decides about a group.
func detail(p part, g *diff.Group) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- %s %s → %s: %s\n", p.name, output.Code(g.From.Text), output.Code(g.To.Text), output.Code(g.Ports.String()))
	for _, line := range reasons(g) {
		fmt.Fprintf(&b, "  - %s\n", output.Code(line))
	}
	return b.String()
}
