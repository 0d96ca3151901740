package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"
	"github.com/pkg/errors"
)

const (
	// mark stands before what Go's tests say about themselves, if they run with -test.v=test2json.
	mark = "\x16"
	// lineLimit is how long a line of their output may be.
	lineLimit = 1 << 20
)

var (
	starts = regexp.MustCompile(`^=== RUN +(.+)$`)
	ends   = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (.+) \(([0-9.]+)s\)$`)
	states = map[string]types.SpecState{
		"PASS": types.SpecStatePassed, "FAIL": types.SpecStateFailed, "SKIP": types.SpecStateSkipped,
	}
)

// reader reads the output of the suite.
type reader struct {
	planned map[string]subtest // by path
	log     io.Writer
	ended   func(types.SpecReport)
	printed map[string]*strings.Builder // what a test printed, by path
	current string
}

// read reads the output until its end, and calls ended for each test of Go that ended and is a subtest of the suite, or
// has failed without one of them having failed.
func (r *reader) read(output io.Reader) error {
	r.printed = map[string]*strings.Builder{}
	failed := map[string]bool{} // tests with a subtest that failed
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, lineLimit)
	for lines.Scan() {
		before, said, marked := strings.Cut(lines.Text(), mark)
		if _, err := fmt.Fprintln(r.log, before+said); err != nil {
			return errors.Wrap(err, "writing the log")
		}
		r.keep(before)
		if !marked {
			continue
		}
		if m := starts.FindStringSubmatch(said); m != nil {
			r.current = m[1]
		} else if m := ends.FindStringSubmatch(said); m != nil {
			r.end(m[2], states[m[1]], m[3], failed)
		}
	}
	return errors.Wrap(lines.Err(), "reading the output of the suite")
}

// keep keeps a line for the test that printed it.
func (r *reader) keep(line string) {
	if line == "" {
		return
	}
	if r.printed[r.current] == nil {
		r.printed[r.current] = &strings.Builder{}
	}
	fmt.Fprintln(r.printed[r.current], line)
}

// end reports the end of a test.
func (r *reader) end(path string, state types.SpecState, seconds string, failed map[string]bool) {
	r.current = path[:max(strings.LastIndex(path, "/"), 0)]
	s, planned := r.planned[path]
	if !planned {
		if state != types.SpecStateFailed || failed[path] {
			return
		}
		s = subtest{test: strings.TrimPrefix(path, suiteName+"/"), name: "(outside of its subtests)"}
	}
	took, _ := time.ParseDuration(seconds + "s")
	spec := s.spec()
	spec.State, spec.RunTime = state, took
	var printed string
	if b := r.printed[path]; b != nil {
		printed = b.String()
	}
	spec.CapturedStdOutErr = printed
	switch state {
	case types.SpecStateFailed:
		spec.Failure.Message = reason(printed)
		for parent := path; parent != ""; parent = parent[:max(strings.LastIndex(parent, "/"), 0)] {
			failed[parent] = true
		}
	case types.SpecStateSkipped:
		spec.Failure.Message = "skipped by the suite"
	}
	r.ended(spec)
}

// reason returns what the last attempt of a test that failed came to, or else what the assertion said.
func reason(printed string) string {
	why := "it failed"
	attempt := false
	for line := range strings.Lines(printed) {
		_, said, isLog := strings.Cut(strings.TrimSpace(line), ".go:")
		if _, after, found := strings.Cut(said, ": "); isLog && found && strings.Contains(after, "xpected connection") {
			why, attempt = after, true
		} else if _, after, found := strings.Cut(line, "Error:"); found && !attempt {
			why = strings.TrimSpace(after)
		}
	}
	return why
}

// spec returns the subtest as the package report knows it.
func (s subtest) spec() types.SpecReport {
	return types.SpecReport{
		ContainerHierarchyTexts: []string{s.test}, LeafNodeText: s.name, LeafNodeType: types.NodeTypeIt,
	}
}
