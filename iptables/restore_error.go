package iptables

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// firstLine is the number of the first line after "*filter".
const firstLine = 2

// RestoreError is an update that was refused. Nothing has changed.
type RestoreError struct {
	// Line is the number of the offending line in Update.String, from 1. It is 0 if no line is to blame. Legacy
	// finds some mistakes only when it commits, and then blames the last line.
	Line int
	// Text is that line.
	Text string
	// Chain is the chain that the line is for, if it is for one.
	Chain string
	// ID is the id of the line's rule, if it is a rule of ours.
	ID string
	// Output is what the program said, at most 4 KiB.
	Output string
	// Err is how the program ended, or why it was not even started.
	Err error
}

// Error names the line, what was said about it and how the program ended.
func (e *RestoreError) Error() string {
	where := ""
	if e.Line != 0 {
		where = fmt.Sprintf("line %d, %.300q: ", e.Line, e.Text)
	}
	output := strings.Join(strings.Fields(e.Output), " ")
	if output != "" {
		output = ": " + output
	}
	return fmt.Sprintf("changing the filter table: %s%v%s", where, e.Err, output)
}

// Unwrap returns Err.
func (e *RestoreError) Unwrap() error { return e.Err }

// newRestoreError blames a line, which is numbered as in the input of iptables-restore.
func newRestoreError(lines []string, line int, output string, err error) *RestoreError {
	e := &RestoreError{Line: line, Output: output, Err: err}
	switch i := line - firstLine; {
	case line == 0:
	case i >= 0 && i < len(lines):
		e.Text = lines[i]
		if name, ok := strings.CutPrefix(e.Text, ":"); ok {
			e.Chain, _, _ = strings.Cut(name, " ")
		} else if r, err := parseRule(e.Text); err == nil {
			e.Chain, e.ID = r.chain, r.idOr("")
		}
	case i == len(lines):
		e.Text = "COMMIT"
	}
	return e
}

// failedLine finds the number of the offending line in what iptables-restore says; 0 if it says none. If it blames
// the commit but names something, the first line that has that as a word is to blame.
func failedLine(lines []string, output string) int {
	number := regexp.MustCompile(`(?m)(?:^|: )line (\d+)(?:: | failed)|^Error occurred at line: (\d+)$`)
	match := number.FindStringSubmatch(output)
	if match == nil {
		return 0
	}
	line, err := strconv.Atoi(match[1] + match[2])
	if err != nil {
		return 0
	}
	if line-firstLine < len(lines) {
		return line
	}
	for _, quoted := range regexp.MustCompile("['`\"]([^'`\"]+)['\"]").FindAllStringSubmatch(output, -1) {
		for i, text := range lines {
			if words, err := split(text); err == nil && slices.Contains(words, quoted[1]) {
				return i + firstLine
			}
		}
	}
	return line
}
