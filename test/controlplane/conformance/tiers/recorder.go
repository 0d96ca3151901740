package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/onsi/ginkgo/v2/types"
	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/test/controlplane/conformance/command"
	"github.com/weave-npc/weave-npc/test/controlplane/conformance/report"
)

// recorder runs the suite in a process of its own and records what comes of it.
type recorder struct {
	*command.Record
	planned []subtest
}

// newRecorder makes the files of the report.
func newRecorder(o *options, run, skip []subtest) (*recorder, error) {
	record, err := command.NewRecord(o.dir, suiteName+" conformance")
	if err != nil {
		return nil, err
	}
	for _, s := range skip {
		record.Result.Ended = append(record.Result.Ended, report.Skip(s.spec(), o.why(s)))
	}
	r := &recorder{Record: record, planned: run}
	err = os.RemoveAll(r.upstream()) // it would be taken for this run's
	return r, errors.Wrap(err, "removing the report of an earlier run (REPORT=DIR says where it is)")
}

// upstream returns the file of the report in upstream's format.
func (r *recorder) upstream() string { return r.File("report.yaml") }

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
	cmd.Stderr = r.Log
	if err := cmd.Start(); err != nil {
		return errors.Wrap(err, "running the suite")
	}
	missing := map[string]subtest{}
	for _, s := range r.planned {
		missing[s.path()] = s
	}
	lines := reader{planned: missing, log: r.Log, ended: r.record}
	err = lines.read(output)
	if err != nil {
		_, _ = io.Copy(io.Discard, output) // or else the suite would wait for its reader
	}
	ended := cmd.Wait()
	r.missed(ended, ctx.Err() != nil)
	r.Result.Took = time.Since(r.Result.Started)
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
	r.Result.Ended = append(r.Result.Ended, spec)
	n := 0
	for _, s := range r.Result.Ended {
		if report.Of(s) != report.Skipped {
			n++
		}
	}
	total := strconv.Itoa(len(r.planned))
	r.Print("[%*d/%s] %s\n", len(total), n, total, report.Line(spec))
}

// missed records the subtests that did not end, and how the suite ended if no subtest failed.
func (r *recorder) missed(ended error, interrupted bool) {
	seen := map[string]bool{}
	for _, spec := range r.Result.Ended {
		seen[spec.FullText()] = true
	}
	for _, s := range r.planned {
		if spec := s.spec(); !seen[spec.FullText()] {
			r.Result.NotRun = append(r.Result.NotRun, spec)
		}
	}
	if ended != nil && !interrupted && r.Result.Count()[report.Failed] == 0 {
		whole := types.SpecReport{LeafNodeText: suiteName, LeafNodeType: types.NodeTypeIt}
		r.record(report.Broken(whole, "the suite ended with "+ended.Error()+"; its log says more"))
	}
}

// close ends the report.
func (r *recorder) close() error {
	official := r.upstream()
	if _, e := os.Stat(official); e != nil {
		official = "none in upstream's format, because the suite did not end"
	}
	return r.Close("suite", official)
}
