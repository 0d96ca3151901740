package output

import (
	"fmt"
	"io"
	"time"

	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/analysis/kernelview"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// Sets writes sets with their members as a table or as JSON.
func Sets(out io.Writer, format string, sets []kernelview.SetRow) error {
	if format == "json" {
		return JSON(out, sets)
	}
	var rows [][]string
	for _, s := range sets {
		about := s.About
		if about == "" {
			about = "?"
		}
		row := []string{s.Set, s.Type, about, orDash(s.Policies), "-"}
		for i, m := range s.Members {
			if i == 0 {
				row[4] = member(m)
				continue
			}
			rows, row = append(rows, row), []string{"", "", "", "", member(m)}
		}
		rows = append(rows, row)
	}
	return Table(out, "SET TYPE HOLDS USED-BY MEMBERS", rows)
}

// Names writes addresses of domain names as a table or as JSON.
func Names(out io.Writer, format string, names []kernelview.NameRow) error {
	if format == "json" {
		return JSON(out, names)
	}
	var rows [][]string
	for _, n := range names {
		counts := (time.Duration(n.Seconds) * time.Second).String()
		rows = append(rows, []string{n.Name, n.Addr.String(), counts, orDash(n.Policies), n.Set})
	}
	return Table(out, "NAME ADDRESS FOR USED-BY SET", rows)
}

// member returns the text of a member in the table.
func member(m kernelview.Member) string {
	text := m.Entry
	if m.NoMatch {
		text = "not " + text
	}
	if m.Is != "" {
		text += " " + m.Is
	}
	return text
}

// Rules writes rules as a table or as JSON. Hits may be nil. A rule of a policy may be several ones in the kernel, each
// with its own hits. Without policies, those of a rule that was changed count for the one that has its number now.
func Rules(out io.Writer, format string, rules []kernelview.RuleRow, hits *flowlog.Hits,
	policies []explain.PolicyRow,
) error {
	known := newHits(hits)
	if known != nil && policies != nil {
		known.place(policies)
	}
	if format == "json" {
		return JSON(out, known.ofRules(rules))
	}
	var rows [][]string
	for i, r := range rules {
		if i == 0 || rules[i-1].Chain != r.Chain || rules[i-1].Family != r.Family {
			head := r.Family + " " + r.Chain
			if r.About != "" {
				head += ": " + r.About
			}
			rows = append(rows, []string{head})
		}
		match := r.Match
		if match == "" {
			match = "everything"
		}
		row := []string{fmt.Sprintf("  %d", r.Number), r.Target, r.For}
		rows = append(rows, append(append(row, known.ofRule(r)...), match))
	}
	if err := Table(out, "RULE TARGET FOR "+known.head()+"MATCHES", rows); err != nil {
		return err
	}
	return known.writeSpan(out)
}
