// Package report collects what came of the specs of a run and sums it up.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/reporters"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/pkg/errors"
)

// Run is what came of the specs of a run.
type Run struct {
	// Suite is what the specs are of, for the JUnit report.
	Suite string
	// Started is when the run began.
	Started time.Time
	// Took is how long it took.
	Took time.Duration
	// Ended are the specs that ran to their end or were skipped, in the order of their ends.
	Ended []types.SpecReport
	// NotRun are the specs that were to run, and did not or not to their end.
	NotRun []types.SpecReport
}

// Verdict is what came of a spec.
type Verdict string

// What can come of a spec.
const (
	Passed  Verdict = "ok"
	Failed  Verdict = "FAIL"
	Skipped Verdict = "skip"
)

// Of returns the outcome of a spec: one that neither passed nor was skipped has failed.
func Of(spec types.SpecReport) Verdict {
	switch {
	case spec.State.Is(types.SpecStatePassed):
		return Passed
	case spec.State.Is(types.SpecStateSkipped | types.SpecStatePending):
		return Skipped
	}
	return Failed
}

// Read finds a spec by its full name in the report (Ginkgo's JSON) of a suite that was to run this spec only. The spec
// has failed too if anything around it did, and if it did not run at all.
func Read(file, name string) (types.SpecReport, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return types.SpecReport{}, errors.Wrap(err, "reading the report of a spec")
	}
	var suites []types.Report
	if err := json.Unmarshal(content, &suites); err != nil {
		return types.SpecReport{}, errors.Wrapf(err, "reading the report %s of a spec", file)
	}
	if len(suites) != 1 {
		return types.SpecReport{}, errors.Errorf("the report %s is of %d suites instead of one", file, len(suites))
	}
	specs := suites[0].SpecReports
	i := slices.IndexFunc(specs, func(s types.SpecReport) bool {
		return s.LeafNodeType.Is(types.NodeTypeIt) && s.FullText() == name
	})
	if i < 0 {
		return types.SpecReport{}, errors.Errorf("there is no spec %q in the report %s", name, file)
	}
	spec := specs[i]
	around := slices.IndexFunc(specs, func(s types.SpecReport) bool {
		return !s.LeafNodeType.Is(types.NodeTypeIt) && s.Failed()
	})
	switch {
	case Of(spec) == Failed:
	case around >= 0:
		spec.State, spec.Failure = specs[around].State, specs[around].Failure
	case !suites[0].SuiteSucceeded:
		why := append([]string{"the suite failed"}, suites[0].SpecialSuiteFailureReasons...)
		return Broken(spec, strings.Join(why, ": ")), nil
	case Of(spec) == Skipped && spec.Failure.Message == "":
		return Broken(spec, "it did not run"), nil
	}
	return spec, nil
}

// Broken returns a spec marked as failed before it had a verdict.
func Broken(spec types.SpecReport, why string) types.SpecReport {
	spec.State = types.SpecStatePanicked
	spec.Failure = types.Failure{Message: why}
	return spec
}

// Skip returns a spec marked as skipped.
func Skip(spec types.SpecReport, why string) types.SpecReport {
	spec.State = types.SpecStateSkipped
	spec.Failure = types.Failure{Message: why}
	return spec
}

// Name returns a spec's name as a reader needs it. It is a part of the full name, which selects specs.
func Name(spec types.SpecReport) string {
	name := strings.TrimPrefix(spec.FullText(), "[sig-network] ")
	return strings.TrimSuffix(name, " [Feature:NetworkPolicy]")
}

// reason returns the first line of why a spec failed or was skipped.
func reason(spec types.SpecReport) string {
	message := spec.Failure.Message
	if message == "" {
		message = spec.Failure.ForwardedPanic
	}
	line, _, _ := strings.Cut(strings.TrimSpace(message), "\n")
	if line = strings.TrimSpace(line); line != "" {
		return line
	}
	return spec.State.String()
}

// Count returns how many specs passed, failed and were skipped.
func (r *Run) Count() map[Verdict]int {
	count := map[Verdict]int{}
	for _, spec := range r.Ended {
		count[Of(spec)]++
	}
	return count
}

// OK reports whether any spec ran, every spec that was to run did, and all passed.
func (r *Run) OK() bool {
	count := r.Count()
	return count[Passed] > 0 && count[Failed] == 0 && len(r.NotRun) == 0
}

// Line returns a finished spec on one line, without the line's end.
func Line(spec types.SpecReport) string {
	return fmt.Sprintf("%-4s %6.1fs  %s", Of(spec), spec.RunTime.Seconds(), Name(spec))
}

// Summary lists the specs that failed with their reasons, and counts the outcomes.
func (r *Run) Summary(w io.Writer) {
	count := r.Count()
	if count[Failed] > 0 {
		fmt.Fprintln(w, "failed:")
		for _, spec := range r.Ended {
			if Of(spec) == Failed {
				fmt.Fprintf(w, "  %s\n      %s\n", Name(spec), reason(spec))
			}
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped", count[Passed], count[Failed], count[Skipped])
	if len(r.NotRun) > 0 {
		fmt.Fprintf(w, ", %d not run", len(r.NotRun))
	}
	fmt.Fprintf(w, ", in %s\n", r.Took.Round(time.Second))
}

// JUnit writes a JUnit report. It holds what was printed by specs that failed, and nothing of what others printed.
func (r *Run) JUnit(file string) error {
	specs := slices.Clone(r.Ended)
	for _, spec := range r.NotRun {
		specs = append(specs, Skip(spec, "not run: the run was interrupted"))
	}
	whole := types.Report{SuiteDescription: r.Suite, SuiteSucceeded: r.OK(), StartTime: r.Started,
		EndTime: r.Started.Add(r.Took), RunTime: r.Took, SpecReports: specs}
	config := reporters.JunitReportConfig{OmitLeafNodeType: true, OmitSpecLabels: true,
		OmitTimelinesForSpecState: types.SpecStatePassed | types.SpecStateSkipped}
	return errors.Wrap(reporters.GenerateJUnitReportWithConfig(whole, file, config), "writing the JUnit report")
}
