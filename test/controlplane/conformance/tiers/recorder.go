package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"
	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/test/controlplane/conformance/report"
)

// recorder runs the suite in a process of its own and records what comes of it.
type recorder struct {
	dir     string
	planned []subtest
	log     *os.File // what the suite printed
	summary *os.File // what this command prints
	result  report.Run
}

// newRecorder makes the files of the report.
func newRecorder(o *options, run, skip []subtest) (*recorder, error) {
	r := &recorder{dir: o.dir, planned: run, result: report.Run{Suite: suiteName + " conformance", Started: time.Now()}}
	for _, s := range skip {
		r.result.Ended = append(r.result.Ended, report.Skip(s.spec(), o.why(s)))
	}
	err := os.MkdirAll(o.dir, 0o755)
	if err == nil {
		r.log, err = os.Create(filepath.Join(o.dir, "log.txt"))
	}
	if err == nil {
		r.summary, err = os.Create(filepath.Join(o.dir, "summary.txt"))
	}
	if err == nil {
		err = os.RemoveAll(r.upstream()) // one of an earlier run would be taken for this run's
	}
	return r, errors.Wrap(err, "making the report (REPORT=DIR says where)")
}

// upstream returns the file of the report in upstream's format.
func (r *recorder) upstream() string { return filepath.Join(r.dir, "report.yaml") }

// run runs the suite until it or the context ends.
func (r *recorder) run(ctx context.Context, p *plan) error {
	p.Report = r.upstream()
	file, err := writePlan(p)
	if err != nil {
		return err
	}
	defer os.Remove(file)
	self, err := os.Executable()
	if err != nil {
		return errors.Wrap(err, "finding this program")
	}
	cmd := exec.CommandContext(ctx, self, runArgument, file, "-test.v=test2json", "-test.timeout="+suiteLimit.String(),
		"-test.run="+pattern(r.planned))
	output, err := cmd.StdoutPipe()
	if err != nil {
		return errors.Wrap(err, "running the suite")
	}
	cmd.Stderr = r.log
	if err := cmd.Start(); err != nil {
		return errors.Wrap(err, "running the suite")
	}
	missing := map[string]subtest{}
	for _, s := range r.planned {
		missing[s.path()] = s
	}
	lines := reader{planned: missing, log: r.log, ended: r.record}
	err = lines.read(output)
	if err != nil {
		_, _ = io.Copy(io.Discard, output) // or else the suite would wait for its reader
	}
	ended := cmd.Wait()
	r.missed(ended, ctx.Err() != nil)
	r.result.Took = time.Since(r.result.Started)
	return err
}

// writePlan writes a plan to a new file.
func writePlan(p *plan) (string, error) {
	content, err := json.Marshal(p)
	if err != nil {
		return "", errors.Wrap(err, "writing the plan of the run")
	}
	f, err := os.CreateTemp("", "conformance-")
	if err != nil {
		return "", errors.Wrap(err, "writing the plan of the run")
	}
	defer f.Close()
	_, err = f.Write(content)
	return f.Name(), errors.Wrap(err, "writing the plan of the run")
}

// record records the end of a subtest.
func (r *recorder) record(spec types.SpecReport) {
	r.result.Ended = append(r.result.Ended, spec)
	n := 0
	for _, s := range r.result.Ended {
		if report.Of(s) != report.Skipped {
			n++
		}
	}
	total := strconv.Itoa(len(r.planned))
	r.print("[%*d/%s] %s\n", len(total), n, total, report.Line(spec))
}

// missed records the subtests that did not end, and how the suite ended if no subtest tells.
func (r *recorder) missed(ended error, interrupted bool) {
	seen := map[string]bool{}
	for _, spec := range r.result.Ended {
		seen[spec.FullText()] = true
	}
	for _, s := range r.planned {
		if spec := s.spec(); !seen[spec.FullText()] {
			r.result.NotRun = append(r.result.NotRun, spec)
		}
	}
	if ended != nil && !interrupted && r.result.Count()[report.Failed] == 0 {
		whole := types.SpecReport{LeafNodeText: suiteName, LeafNodeType: types.NodeTypeIt}
		r.record(report.Broken(whole, "the suite ended with "+ended.Error()+"; its log says more"))
	}
}

// print prints, and writes the same to the summary.
func (r *recorder) print(format string, args ...any) {
	fmt.Fprintf(io.MultiWriter(r.summary, os.Stdout), format, args...)
}

// close prints the summary and ends the report.
func (r *recorder) close() error {
	var b strings.Builder
	r.result.Summary(&b)
	r.print("\n%s", b.String())
	junit := filepath.Join(r.dir, "junit.xml")
	err := r.result.JUnit(junit)
	official := r.upstream()
	if _, e := os.Stat(official); e != nil {
		official = "none in upstream's format, because the suite did not end"
	}
	fmt.Printf("report: %s, %s, %s; what the suite did: %s\n", r.summary.Name(), junit, official, r.log.Name())
	for _, f := range []*os.File{r.log, r.summary} {
		if e := f.Close(); e != nil && err == nil {
			err = errors.Wrap(e, "writing the report")
		}
	}
	return err
}
