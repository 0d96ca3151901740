package output

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/input"
	"github.com/weave-npc/weave-npc/internal/spelling"
	"github.com/weave-npc/weave-npc/npc/analysis/explain"
	"github.com/weave-npc/weave-npc/npc/flow/flowlog"
)

// wide is the format of a table whose lines may be wider than the terminal.
const wide = "wide"

// unbroken hides a terminal, whose width tables fit.
type unbroken struct{ io.Writer }

// Pods writes pods as a table, as one whose lines are not broken, or as JSON. The column of cluster network policies is
// there if one selects a pod.
func Pods(out io.Writer, format string, pods []explain.PodRow) error {
	if format == "json" {
		return JSON(out, pods)
	}
	if format == wide {
		out = unbroken{out}
	}
	selected := slices.ContainsFunc(pods, func(p explain.PodRow) bool { return len(p.ClusterPolicies) > 0 })
	head := "POD NODE ADDRESSES INGRESS-ISOLATED-BY EGRESS-ISOLATED-BY NOTE"
	if selected {
		head = strings.Replace(head, "NOTE", "SELECTED-BY NOTE", 1)
	}
	var rows [][]string
	for _, p := range pods {
		row := []string{p.Pod, orDash(strings.Fields(p.Node)), orDash(spelling.Texts(p.Addresses)), orDash(p.Ingress),
			orDash(p.Egress)}
		if selected {
			row = append(row, orDash(p.ClusterPolicies))
		}
		if p.Unknown != "" {
			for i := range row[3:] {
				row[3+i] = strings.Replace(row[3+i]+",?", "-,?", "?", 1)
			}
			p.Note = strings.Trim(p.Unknown+"; "+p.Note, "; ")
		}
		rows = append(rows, append(row, p.Note))
	}
	return Table(out, head, rows)
}

// Policies writes policies as a table, as one with the names of all pods, or as JSON, and after them those that are
// staged. If there are cluster network policies, each tier has a table of its own. Hits may be nil.
func Policies(out io.Writer, format string, policies []explain.PolicyRow, staged []input.Row, hits *flowlog.Hits,
) error {
	known := newHits(hits)
	if format == "json" {
		all := known.ofPolicies(policies)
		for i := range staged {
			all = append(all, &staged[i])
		}
		return JSON(out, all)
	}
	most := 3
	if format == wide {
		out, most = unbroken{out}, math.MaxInt
	}
	if err := enforcedPolicies(out, policies, known, most); err != nil {
		return err
	}
	if err := known.writeSpan(out); err != nil {
		return err
	}
	return stagedPolicies(out, staged, most)
}

// enforcedPolicies writes tables of the policies that are not staged, with the names of most pods of each.
func enforcedPolicies(out io.Writer, policies []explain.PolicyRow, known *hits, most int) error {
	if !slices.ContainsFunc(policies, func(p explain.PolicyRow) bool { return p.Tier != "" }) {
		return networkPolicies(out, policies, known, most)
	}
	for _, section := range []struct {
		tier, head string
		write      func(io.Writer, []explain.PolicyRow, *hits, int) error
	}{
		{"Admin", "Admin tier, asked first:", clusterPolicies},
		{"", "NetworkPolicies, asked about the pods that they isolate:", networkPolicies},
		{"Baseline", "Baseline tier, asked about the pods that no NetworkPolicy isolates:", clusterPolicies},
		{explain.NoTier, "Not asked:", clusterPolicies},
	} {
		var rows []explain.PolicyRow
		for _, p := range policies {
			if p.Tier == section.tier {
				rows = append(rows, p)
			}
		}
		if len(rows) == 0 {
			continue
		}
		if policies[0].Tier != section.tier {
			section.head = "\n" + section.head
		}
		if _, err := fmt.Fprintln(out, section.head); err != nil {
			return errors.Wrap(err, "writing")
		}
		if err := section.write(out, rows, known, most); err != nil {
			return err
		}
	}
	return nil
}

// networkPolicies writes a table of NetworkPolicies.
func networkPolicies(out io.Writer, policies []explain.PolicyRow, known *hits, most int) error {
	var rows [][]string
	for _, p := range policies {
		rows = append(rows, withLines([]string{p.Policy, types(p), selects(p, most)}, known.lines(p, allows(p)))...)
	}
	return Table(out, "POLICY TYPES ISOLATES "+known.head()+"ALLOWS", rows)
}

// clusterPolicies writes a table of cluster network policies.
func clusterPolicies(out io.Writer, policies []explain.PolicyRow, known *hits, most int) error {
	var rows [][]string
	for _, p := range policies {
		lines := rules(p)
		switch {
		case p.Tier == explain.NoTier:
			lines = []string{"nothing: it is invalid: " + p.Invalid}
		case len(lines) == 0:
			lines = []string{"nothing"}
		}
		cells := []string{p.Policy, strconv.Itoa(int(*p.Priority)), subject(p, most)}
		rows = append(rows, withLines(cells, known.lines(p, lines))...)
	}
	return Table(out, "POLICY PRIORITY SELECTS "+known.head()+"DECIDES", rows)
}

// withLines returns a row whose last cells have several lines.
func withLines(row []string, lines [][]string) [][]string {
	rows := [][]string{append(row, lines[0]...)}
	for _, line := range lines[1:] {
		rows = append(rows, append(make([]string, len(row)), line...))
	}
	return rows
}

func types(p explain.PolicyRow) string {
	words := make([]string, 0, len(p.Types))
	for _, t := range p.Types {
		words = append(words, string(t))
	}
	return orDash(words)
}

// subject describes the pods that a cluster network policy selects.
func subject(p explain.PolicyRow, most int) string {
	if p.Tier == explain.NoTier {
		return "-"
	}
	return p.Selects + named(p, most)
}

// selects describes the pods that a policy isolates.
func selects(p explain.PolicyRow, most int) string {
	text := "all pods"
	if p.Selects != "" {
		text = p.Selects
	}
	return text + named(p, most)
}

// named returns the first of a policy's pods in parentheses.
func named(p explain.PolicyRow, most int) string {
	names := p.Pods
	if len(names) > most {
		names = append(names[:most:most], fmt.Sprintf("%d more", len(p.Pods)-most))
	}
	switch {
	case p.Unreadable:
		names = append(slices.Clone(names), "perhaps others that cannot be read")
	case len(names) == 0:
		return " (none)"
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// allows describes what a policy allows, in one line at least.
func allows(p explain.PolicyRow) (lines []string) {
	lines = rules(p)
	switch {
	case len(lines) > 0:
		return lines
	case p.Invalid != "":
		return []string{"nothing: it is invalid: " + p.Invalid}
	}
	return []string{"nothing"}
}

// rules returns a line for each rule.
func rules(p explain.PolicyRow) (lines []string) {
	for i, r := range p.Ingress {
		lines = append(lines, fmt.Sprintf("ingress %d: %s", i+1, r))
	}
	for i, r := range p.Egress {
		lines = append(lines, fmt.Sprintf("egress %d: %s", i+1, r))
	}
	return lines
}
