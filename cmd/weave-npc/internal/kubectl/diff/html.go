package diff

import (
	"bufio"
	_ "embed" // the style
	"fmt"
	"html"
	"io"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/analysis/diff"
)

//go:embed style.css
var style string

// writeHTML writes the report as one page without anything from elsewhere.
func (r *report) writeHTML(out io.Writer) error {
	b := bufio.NewWriter(out)
	put := func(format string, args ...any) { _, _ = fmt.Fprintf(b, format, args...) }
	title := html.EscapeString(spelling.Escape(fmt.Sprintf("diff %s %s", r.before, r.after)))
	put("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"+
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"+
		"<title>%s</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n<h1>%s</h1>\n<p>%s</p>\n",
		title, style, title, html.EscapeString(r.summary()))
	for _, p := range r.parts() {
		if p.Len() == 0 {
			continue
		}
		put("<h2 id=\"%s\">%s</h2>\n<table class=\"%s\">\n<thead><tr>"+
			"<th scope=\"col\">Sign</th><th scope=\"col\">From</th><th scope=\"col\">To</th>"+
			"<th scope=\"col\">Ports</th><th scope=\"col\">Pairs</th></tr></thead>\n<tbody>\n", p.name,
			map[string]string{onOpens: "Opens", onCloses: "Closes"}[p.name], p.name)
		p.Each(func(g diff.Group) bool {
			put("%s", htmlRow(p, &g))
			return true
		})
		put("</tbody>\n</table>\n")
	}
	put("</main>\n</body>\n</html>\n")
	return errors.Wrap(b.Flush(), "writing")
}

// htmlRow returns a group as a row with folded reasons.
func htmlRow(p part, g *diff.Group) string {
	text := func(s string) string { return html.EscapeString(spelling.Escape(s)) }
	row := fmt.Sprintf("<tr><td class=\"sign\">%s</td><td>%s</td><td>%s</td>"+
		"<td><code>%s</code><details><summary>what decides</summary><ul>",
		map[string]string{onOpens: "+ opens", onCloses: "&minus; closes"}[p.name],
		text(g.From.Text), text(g.To.Text), text(g.Ports.String()))
	for _, line := range reasons(g) {
		row += "<li>" + text(line) + "</li>"
	}
	return row + fmt.Sprintf("</ul></details></td><td>%s</td></tr>\n", text(pairs(g.Pods, g.Outside)))
}
