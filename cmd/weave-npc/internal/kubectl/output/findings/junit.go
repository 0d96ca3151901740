package findings

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name      string       `xml:"name,attr"`
	ClassName string       `xml:"classname,attr"`
	File      string       `xml:"file,attr,omitempty"`
	Line      int          `xml:"line,attr,omitempty"`
	Time      string       `xml:"time,attr"`
	Failure   *junitResult `xml:"failure"`
	Skipped   *junitResult `xml:"skipped"`
	Output    string       `xml:"system-out,omitempty"`
}

type junitResult struct {
	Message string `xml:"message,attr,omitempty"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// writeJUnit writes a test for each case, and one for each rule: it fails if the rule has findings of the level that
// fails. Those of lower levels are its output.
func (r *Report) writeJUnit(out *bytes.Buffer, o Options) error {
	all := junitSuites{Name: tool}
	if len(r.Cases) > 0 {
		name := r.suite()
		s := junitSuite{Name: name}
		for _, c := range r.Cases {
			s.Cases = append(s.Cases, c.junit(tool+"."+name, o))
		}
		all.add(s)
	}
	if rules := r.junitRules(o); len(rules) > 0 {
		all.add(junitSuite{Name: "rules", Cases: rules})
	}
	out.WriteString(xml.Header)
	e := xml.NewEncoder(out)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	out.WriteByte('\n')
	return nil
}

func (all *junitSuites) add(s junitSuite) {
	s.Time, s.Tests = "0", len(s.Cases)
	for i := range s.Cases {
		c := &s.Cases[i]
		c.Time = "0"
		switch {
		case c.Failure != nil:
			s.Failures++
		case c.Skipped != nil:
			s.Skipped++
		}
	}
	all.Tests, all.Failures, all.Skipped = all.Tests+s.Tests, all.Failures+s.Failures, all.Skipped+s.Skipped
	all.Suites = append(all.Suites, s)
}

func (c *Case) junit(class string, o Options) junitCase {
	j := junitCase{Name: clean(c.Name), ClassName: class}
	if isFile(c.File) {
		j.File, j.Line = clean(o.relative(c.File)), c.Line
	}
	result := &junitResult{Message: clean(c.Message), Type: clean(c.Rule),
		Text: strings.Join(cleanLines(c.Detail), "\n")}
	switch c.Outcome {
	case Failed:
		j.Failure = result
	case skipped:
		j.Skipped = &junitResult{Message: result.Message}
	case passed:
	}
	return j
}

// junitRules returns a test for each rule.
func (r *Report) junitRules(o Options) (cases []junitCase) {
	selected, omitted := r.selected(o.Limit)
	byRule := map[string][]Finding{}
	for _, f := range selected {
		byRule[f.Rule] = append(byRule[f.Rule], f)
	}
	for _, rule := range r.allRules() {
		c := junitCase{Name: clean(rule.ID), ClassName: tool + ".rules"}
		var failures, others []string
		for _, f := range byRule[rule.ID] {
			lines := append([]string{fmt.Sprintf("%s%s: %s", place(f), f.Level, f.text())}, cleanLines(f.Detail)...)
			text := strings.Join(lines, "\n    ")
			if f.Level >= o.FailOn {
				failures = append(failures, text)
			} else {
				others = append(others, text)
			}
		}
		if len(failures) > 0 {
			c.Failure = &junitResult{Message: fmt.Sprintf("%d: %s", len(failures), clean(rule.Short)),
				Type: clean(rule.ID), Text: strings.Join(failures, "\n")}
		}
		c.Output = strings.Join(others, "\n")
		cases = append(cases, c)
	}
	if omitted > 0 {
		cases = append(cases, junitCase{Name: "limit", ClassName: tool + ".rules",
			Skipped: &junitResult{Message: more(omitted) + " than the limit"}})
	}
	return cases
}
