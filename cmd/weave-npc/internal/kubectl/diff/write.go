package diff

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/output/findings"
	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/analysis/diff"
)

// The values of --output.
const (
	outputText     = "text"
	outputMarkdown = "markdown"
	outputJSON     = "json"
	outputJUnit    = "junit"
	outputSARIF    = "sarif"
	outputHTML     = "html"
)

// write writes the report in a format.
func (r *report) write(out io.Writer, format string) error {
	switch format {
	case outputJSON:
		return r.writeJSON(out)
	case outputMarkdown:
		return writeAll(out, r.markdown())
	case outputHTML:
		return r.writeHTML(cli.Raw(out))
	case outputJUnit, outputSARIF:
		return r.findings().Write(out, findings.Options{Format: format, FailOn: findings.Error})
	}
	return writeAll(out, r.text())
}

// text returns the report as text.
func (r *report) text() string {
	var b strings.Builder
	for _, p := range r.parts() {
		for i, g := range p.Groups(r.limit) {
			if i == 0 {
				fmt.Fprintf(&b, "%s:\n", p.name)
			}
			fmt.Fprintf(&b, "%s %s -> %s: %s (%s)\n", p.sign, spelling.Escape(g.From.Text), spelling.Escape(g.To.Text),
				spelling.Escape(g.Ports.String()), pairs(g.Pods, g.Outside))
			for _, line := range reasons(&g) {
				fmt.Fprintf(&b, "    %s\n", spelling.Escape(line))
			}
		}
		if more := p.Len() - r.limit; r.limit > 0 && more > 0 {
			fmt.Fprintf(&b, "%s ... and %s more; --limit 0 lists all\n", p.sign, spelling.Count(more, "group"))
		}
	}
	b.WriteString(r.summary() + "\n")
	return b.String()
}

// findings returns the report for continuous integration: a finding for each group.
func (r *report) findings() *findings.Report {
	out := &findings.Report{Version: cli.Version(), Suite: "differences"}
	for _, p := range r.parts() {
		level := findings.Error
		if r.failOn != onAny && r.failOn != p.name {
			level = findings.Note
		}
		out.Rules = append(out.Rules, findings.RuleInfo{ID: p.name, Level: level, Short: map[string]string{
			onOpens: "connections are allowed that were not", onCloses: "connections are not allowed any more"}[p.name],
			Doc: "docs/diff.md"})
		for _, g := range p.Groups(r.limit) {
			out.Findings = append(out.Findings, findings.Finding{Rule: p.name, Level: level,
				Message: fmt.Sprintf("%s -> %s: %s (%s)", g.From.Text, g.To.Text, g.Ports, pairs(g.Pods, g.Outside)),
				Detail:  strings.Join(reasons(&g), "\n")})
		}
		if more := p.Len() - r.limit; r.limit > 0 && more > 0 {
			out.Findings = append(out.Findings, findings.Finding{Rule: p.name, Level: level,
				Message: fmt.Sprintf("%s more %s; --limit 0 lists all", spelling.Count(more, "group"), p.name)})
		}
	}
	return out
}

// writeJSON writes everything, group by group: there may be many, with many workloads each.
func (r *report) writeJSON(out io.Writer) error {
	b := bufio.NewWriter(out)
	type count struct {
		Groups int `json:"groups"`
		Pods   int `json:"pairs_of_pods"`
		Ranges int `json:"pairs_with_ranges"`
	}
	head, err := json.Marshal(struct {
		Before    string `json:"before"`
		After     string `json:"after"`
		Same      bool   `json:"same"`
		Pods      int    `json:"pods"`
		Workloads int    `json:"workloads"`
		Ranges    int    `json:"ranges"`
		Opened    count  `json:"opened"`
		Closed    count  `json:"closed"`
	}{r.before, r.after, r.Same(), r.Pods, r.Workloads, r.Ranges, count{r.Opens.Len(), r.Opens.Pods, r.Opens.Outside},
		count{r.Closes.Len(), r.Closes.Pods, r.Closes.Outside}})
	if err != nil {
		return errors.Wrap(err, "writing JSON")
	}
	_, _ = b.Write(head[:len(head)-1])
	for _, p := range r.parts() {
		_, _ = fmt.Fprintf(b, ",\n%q:[", p.name)
		first := true
		p.Each(func(g diff.Group) bool {
			var text []byte
			if text, err = json.Marshal(g); err != nil {
				return false
			}
			if !first {
				_ = b.WriteByte(',')
			}
			first = false
			_ = b.WriteByte('\n')
			_, _ = b.Write(text)
			return true
		})
		_, _ = b.WriteString("]")
	}
	_, _ = b.WriteString("}\n")
	if err != nil {
		return errors.Wrap(err, "writing JSON")
	}
	return errors.Wrap(b.Flush(), "writing JSON")
}
