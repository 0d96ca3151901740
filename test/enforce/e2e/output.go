package e2e

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weave-npc/weave-npc/test/await"
)

// stack is part of every printed stack. A log must have none, whatever else the test expects.
const stack = ".go:"

// trouble reports whether a line has a warning or worse, which a test must expect.
func trouble(line string) bool {
	for _, word := range []string{"level=ERROR", "level=WARN", "DATA RACE", "panic:", "fatal error:", stack} {
		if strings.Contains(line, word) {
			return true
		}
	}
	return false
}

// slowMachine matches what weave-npc logs when a step of the test, or a program that it runs, takes long. On a slow
// machine that says nothing about weave-npc, which tries again, or counts what was lost: what it enforces is checked by
// packets.
var slowMachine = regexp.MustCompile(`fail-closed filter closed for long|more blocked packets than can be logged|` +
	`cannot (bring the kernel up to date|look for drift|write the rules of a namespace), trying again.*` +
	`(context deadline exceeded|Can't lock )`)

// complains reports whether CheckLog would fail the test.
func (d *Daemon) complains() bool { return len(d.Log.unexpected(false)) > 0 }

// CheckLog fails the test if weave-npc logged trouble that the test does not expect.
func (d *Daemon) CheckLog(t *testing.T) {
	t.Helper()
	for _, line := range d.Log.unexpected(true) {
		t.Errorf("weave-npc on %s says: %s", d.Node, line)
		if !strings.Contains(line, "level=") {
			t.Errorf("its last words:\n%s", d.Log)
		}
	}
}

// Output is what a process has printed.
type Output struct {
	mu       sync.Mutex // guards the fields below
	text     strings.Builder
	line     int      // where the last line begins
	troubles []string // lines with trouble
	checked  int      // how many of them CheckLog has seen
	expected []*regexp.Regexp
}

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	for rest := o.text.String()[o.line:]; ; {
		line, more, complete := strings.Cut(rest, "\n")
		if !complete {
			return len(b), nil
		}
		o.line += len(line) + 1
		rest = more
		if trouble(line) {
			o.troubles = append(o.troubles, line)
		}
	}
}

// String returns the end of it.
func (o *Output) String() string {
	const enough = 8000
	text := o.All()
	if len(text) > enough {
		text = "...\n" + text[len(text)-enough:]
	}
	return text
}

// All returns everything that was printed.
func (o *Output) All() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Since returns what was printed after the first n bytes.
func (o *Output) Since(n int) string { return o.All()[n:] }

// Len returns the number of bytes that were printed.
func (o *Output) Len() int { return len(o.All()) }

// Expect lets CheckLog pass lines that match.
func (o *Output) Expect(pattern string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.expected = append(o.expected, regexp.MustCompile(pattern))
}

// unexpected returns the lines with trouble that the test does not expect and has not seen yet.
func (o *Output) unexpected(seen bool) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var lines []string
	for _, line := range o.troubles[o.checked:] {
		if slowMachine.MatchString(line) {
			continue
		}
		if strings.Contains(line, stack) || !slices.ContainsFunc(o.expected,
			func(e *regexp.Regexp) bool { return e.MatchString(line) }) {
			lines = append(lines, line)
		}
	}
	if seen {
		o.checked = len(o.troubles)
	}
	return lines
}

// AwaitLine waits for a line that matches, after the first n bytes.
func (d *Daemon) AwaitLine(t *testing.T, n int, pattern string) string {
	t.Helper()
	wanted := regexp.MustCompile("(?m)^.*" + pattern + ".*$")
	var found string
	await.Within(t, Timeout, func() bool {
		found = wanted.FindString(d.Log.Since(n))
		return found != ""
	}, func() string {
		return "weave-npc on " + d.Node.Name() + " does not say " + pattern + ":\n" + d.Log.String()
	})
	return found
}
