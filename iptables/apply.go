package iptables

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
)

// Apply carries out the update in one transaction. If iptables-restore rejects it, nothing has changed. If the context
// ends first, Apply kills the program, and the update may or may not have taken place.
func (t *Table) Apply(ctx context.Context, u Update) error {
	lines := u.lines()
	if len(lines) == 0 {
		return nil
	}
	for i, line := range lines {
		if err := checkLine(line); err != nil {
			return newRestoreError(lines, i+firstLine, "", err)
		}
	}
	args := append([]string{"--noflush"}, t.waitArgs...)
	_, stderr, err := run(ctx, restoreInput(lines), t.programs.restore, args...)
	if err == nil {
		return nil
	}
	if unparsable(stderr) && slices.ContainsFunc(u.Jumps, func(j Jump) bool { return len(j.Stale) > 0 }) {
		return t.applyAlongsideNFT(ctx, u)
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !exit.Exited() { // not started, or ended by a signal
		return explain(err, stderr, "running %s", t.programs.restore)
	}
	return newRestoreError(lines, failedLine(lines, stderr), stderr, explain(err, "", "running %s", t.programs.restore))
}

// Try runs iptables-restore as Apply does, including the lock, with an update that changes nothing. If Try fails, Apply
// would fail too.
func (t *Table) Try(ctx context.Context) error {
	args := append([]string{"--noflush", "--test"}, t.waitArgs...)
	_, stderr, err := run(ctx, restoreInput(nil), t.programs.restore, args...)
	if err != nil {
		return explain(err, stderr, "running %s", t.programs.restore)
	}
	return nil
}

// applyAlongsideNFT applies an update to a table where iptables cannot delete a rule because it cannot parse another
// rule of the same chain. It inserts the jumps first and then deletes the stale rules by their handles.
func (t *Table) applyAlongsideNFT(ctx context.Context, u Update) error {
	filter := nftFilter{t.family}
	before, err := filter.rules()
	if err != nil {
		return err
	}
	var stale []nftRule
	add := u
	add.Jumps = nil
	for _, j := range u.Jumps {
		for _, r := range before {
			if r.chain == j.Chain && slices.Contains(j.Stale, r.text()) {
				stale = append(stale, r)
			}
		}
		j.Stale = nil
		add.Jumps = append(add.Jumps, j)
	}
	if err := t.Apply(ctx, add); err != nil {
		return err
	}
	for _, r := range stale {
		if err := filter.delete(r); err != nil {
			return errors.Wrapf(err, "deleting %s", r.text())
		}
	}
	return nil
}

// firstLine is the number of the first line after "*filter".
const firstLine = 2

// restoreError is the error of an update that iptables-restore rejected. Nothing has changed.
type restoreError struct {
	// Line is the number of the offending line in Update.String, from 1. It is 0 if no line is to blame. Legacy finds
	// some mistakes only when it commits, and then blames the last line.
	Line int
	// Text is the offending line.
	Text string
	// Chain is the chain of the line, if it has one.
	Chain string
	// ID is the id of the line's rule, if the line is a rule with an id.
	ID string
	// Output is the error output of the program, at most 4 KiB.
	Output string
	// Err is the exit status of the program, or the reason why it was not started.
	Err error
}

// Error returns the line, the output about it and the exit status in one line.
func (e *restoreError) Error() string {
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
func (e *restoreError) Unwrap() error { return e.Err }

// newRestoreError returns an error that blames a line, which is numbered as in the input of iptables-restore.
func newRestoreError(lines []string, line int, output string, err error) *restoreError {
	e := &restoreError{Line: line, Output: output, Err: err}
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

// failedLine returns the number of the offending line according to the output of iptables-restore, or 0 if the output
// has none. If the program blames the commit but quotes a word, the first line with that word is the offending one.
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
			if words, err := Words(text); err == nil && slices.Contains(words, quoted[1]) {
				return i + firstLine
			}
		}
	}
	return line
}
