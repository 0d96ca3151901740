// Package findings writes what commands find out about objects, for people and for continuous integration.
//
//	r := findings.Report{Version: version, Rules: rules, Findings: found, Cases: cases}
//	if err := r.Write(out, findings.Options{Format: "sarif", Limit: 1000}); err != nil { ... }
//	if r.Failed(findings.Error) { ... } // exit status 1
//
//	Report (Findings of Rules, Cases) ─▶ Write ─▶ text, json, junit, sarif, markdown, github
//
// Names, labels and paths may hold any text. Each writer escapes them for its format, and none passes control
// characters on (clean).
//
// The package knows neither how things are found out nor what they mean.
package findings

import (
	"cmp"
	"slices"

	"github.com/pkg/errors"
)

// Level is how grave a finding is.
type Level uint8

// The levels, in ascending order. Never is none of a finding: it is above all of them, as a threshold that none
// reaches.
const (
	Note Level = iota
	Warning
	Error
	never
)

// Levels returns the names of the levels that may be thresholds, in descending order.
func Levels() []string {
	return []string{never.String(), Error.String(), Warning.String(), Note.String()}
}

// String returns the name of the level.
func (l Level) String() string { return [...]string{"note", "warning", "error", "never"}[l] }

// ParseLevel returns the level of a name.
func ParseLevel(name string) (Level, error) {
	for l := Note; l <= never; l++ {
		if l.String() == name {
			return l, nil
		}
	}
	return 0, errors.Errorf("%q is none of error, warning, note and never", name)
}

// Object names the object that a finding is about. Its namespace is empty if it has none, its kind if there is no
// object.
type Object struct{ Kind, Namespace, Name string }

// String returns the kind and the name, as "Pod shop/web"; empty if there is no object.
func (o Object) String() string {
	switch {
	case o.Kind == "":
		return ""
	case o.Namespace == "":
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Finding is something that is wrong, or may be.
type Finding struct {
	Rule  string // the ID of a RuleInfo
	Level Level
	// Message is one line, which does not name the object. Detail is more about it, in lines; it may be empty.
	Message, Detail string
	Object          Object
	// File is empty if the object is in no file. Line is 0 if it is not known.
	File string
	Line int
}

// RuleInfo describes a kind of finding.
type RuleInfo struct {
	ID    string // in kebab-case, stable over versions
	Level Level  // of its findings, unless they are of another
	// Short is what is wrong, in one line. Help is why, and what to do about it.
	Short, Help string
	// Doc is the page and heading of the documentation, such as "docs/lint.md#selects-nothing"; it may be empty.
	Doc string
}

// Outcome is what became of a case.
type Outcome uint8

// The outcomes.
const (
	passed Outcome = iota
	Failed
	skipped
)

// String returns the outcome in lower case.
func (o Outcome) String() string { return [...]string{"passed", "failed", "skipped"}[o] }

// Case is something that was expected. A failed one counts as a finding of level Error. Formats that have no cases show
// it as one.
type Case struct {
	Name    string
	Outcome Outcome
	Rule    string // the ID of the Rule for the finding of a failure
	// Message is why it failed or was skipped, in one line. Detail is more about it, in lines.
	Message, Detail string
	File            string
	Line            int
}

// Report is what a command found out.
type Report struct {
	Version  string // of weave-npc
	Rules    []RuleInfo
	Findings []Finding
	Cases    []Case
	// Suite is what the cases are called together, such as "expectations".
	Suite string
}

// Failed reports whether a case failed or a finding is at least as grave as a level. At never, nothing is.
func (r *Report) Failed(at Level) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Level >= at }) ||
		at < never && r.outcomes()[Failed] > 0
}

// suite returns what the cases are called.
func (r *Report) suite() string { return cmp.Or(clean(r.Suite), "cases") }

func (r *Report) outcomes() (n [3]int) {
	for _, c := range r.Cases {
		n[c.Outcome]++
	}
	return n
}

// levels counts the findings by their level.
func (r *Report) levels() (n [3]int) {
	for _, f := range r.Findings {
		n[f.Level]++
	}
	return n
}

// selected returns the gravest findings, as many as the limit allows, in the order of their files, lines and objects,
// and how many are left out.
func (r *Report) selected(limit int) (selected []Finding, omitted int) {
	selected = slices.SortedStableFunc(slices.Values(r.Findings), inOrder)
	if limit <= 0 || limit >= len(selected) {
		return selected, 0
	}
	slices.SortStableFunc(selected, func(a, b Finding) int { return cmp.Compare(b.Level, a.Level) })
	omitted = len(selected) - limit
	selected = selected[:limit]
	slices.SortStableFunc(selected, inOrder)
	return selected, omitted
}

func inOrder(a, b Finding) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
		cmp.Compare(a.Object.String(), b.Object.String()),
		cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message))
}

// asFindings returns the findings, and those that failed cases are.
func (r *Report) asFindings() *Report {
	all := *r
	all.Findings = slices.Clone(r.Findings)
	for _, c := range r.Cases {
		if c.Outcome == Failed {
			all.Findings = append(all.Findings, Finding{Rule: c.Rule, Level: Error,
				Message: c.Name + ": " + c.Message, Detail: c.Detail, File: c.File, Line: c.Line})
		}
	}
	return &all
}

// allRules returns the rules, and one for each ID that findings have and rules do not.
func (r *Report) allRules() []RuleInfo {
	all, known := slices.Clone(r.Rules), map[string]bool{}
	for _, rule := range all {
		known[rule.ID] = true
	}
	for _, f := range r.Findings {
		if !known[f.Rule] {
			known[f.Rule] = true
			all = append(all, RuleInfo{ID: f.Rule, Level: f.Level, Short: f.Rule})
		}
	}
	return all
}
