package findings

import (
	"bytes"
	"encoding/json"

	"github.com/weave-npc/weave-npc/internal/spelling"
)

// jsonReport is a report in JSON. Fields are only ever added.
type jsonReport struct {
	Version  string         `json:"version"`
	Counts   map[string]int `json:"counts"` // of findings by level, and of cases by outcome
	Findings []jsonFinding  `json:"findings"`
	Omitted  int            `json:"omitted,omitempty"` // findings that the limit left out
	Cases    []jsonCase     `json:"cases,omitempty"`
	Rules    []jsonRule     `json:"rules"`
}

type jsonFinding struct {
	Rule    string      `json:"rule"`
	Level   string      `json:"level"`
	Message string      `json:"message"`
	Detail  string      `json:"detail,omitempty"`
	Object  *jsonObject `json:"object,omitempty"`
	File    string      `json:"file,omitempty"`
	Line    int         `json:"line,omitempty"`
}

type jsonObject struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

type jsonCase struct {
	Name    string `json:"name"`
	Outcome string `json:"outcome"`
	Rule    string `json:"rule,omitempty"`
	Message string `json:"message,omitempty"`
	Detail  string `json:"detail,omitempty"`
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
}

type jsonRule struct {
	ID    string `json:"id"`
	Level string `json:"level"`
	Short string `json:"short"`
	Help  string `json:"help,omitempty"`
	Doc   string `json:"doc,omitempty"`
}

func (r *Report) writeJSON(out *bytes.Buffer, o Options) error {
	levels, outcomes := r.levels(), r.outcomes()
	report := jsonReport{Version: r.Version, Counts: map[string]int{}, Findings: []jsonFinding{}, Rules: []jsonRule{}}
	for l := Note; l <= Error; l++ {
		report.Counts[l.String()] = levels[l]
	}
	for c := passed; c <= skipped; c++ {
		report.Counts[c.String()] = outcomes[c]
	}
	var selected []Finding
	selected, report.Omitted = r.selected(o.Limit)
	for _, f := range selected {
		found := jsonFinding{Rule: f.Rule, Level: f.Level.String(), Message: f.Message, Detail: f.Detail,
			File: f.File, Line: f.Line}
		if f.Object.Kind != "" {
			found.Object = &jsonObject{f.Object.Kind, f.Object.Namespace, f.Object.Name}
		}
		report.Findings = append(report.Findings, found)
	}
	for _, c := range r.Cases {
		report.Cases = append(report.Cases,
			jsonCase{c.Name, c.Outcome.String(), c.Rule, c.Message, c.Detail, c.File, c.Line})
	}
	for _, rule := range r.allRules() {
		report.Rules = append(report.Rules, jsonRule{rule.ID, rule.Level.String(), rule.Short, rule.Help, rule.Doc})
	}
	return encode(out, report)
}

// encode writes a value as indented JSON.
func encode(out *bytes.Buffer, value any) error {
	e := json.NewEncoder(spelling.NewWriter(out))
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(value)
}
