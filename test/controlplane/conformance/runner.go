package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2/types"
	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/test/controlplane/conformance/command"
	"github.com/weave-npc/weave-npc/test/controlplane/conformance/report"
)

// runner runs specs, each in a process of its own.
type runner struct {
	*command.Record
	options *options
	specs   []types.SpecReport
	scratch string // directory for the processes' reports
}

// ending is the end of a spec.
type ending struct {
	spec   types.SpecReport
	output []byte
	killed bool // before its end, by this command
}

// newRunner makes the files of the report.
func newRunner(o *options, run, skip []types.SpecReport) (*runner, error) {
	record, err := command.NewRecord(o.dir, suiteName)
	if err != nil {
		return nil, err
	}
	record.Result.Ended = skip
	scratch, err := os.MkdirTemp("", "conformance-")
	r := &runner{Record: record, options: o, specs: run, scratch: scratch}
	return r, errors.Wrap(err, "making a directory for the specs' reports")
}

// runAll runs the specs, several at a time, until all have ended or the context has.
func (r *runner) runAll(ctx context.Context) error {
	queue, endings := make(chan int), make(chan ending)
	var workers sync.WaitGroup
	for range min(r.options.procs, len(r.specs)) {
		workers.Go(func() {
			for i := range queue {
				endings <- r.runOne(ctx, r.specs[i], filepath.Join(r.scratch, strconv.Itoa(i)))
			}
		})
	}
	go func() {
		for i := range r.specs {
			queue <- i
		}
		close(queue)
		workers.Wait()
		close(endings)
	}()
	var err error
	n := 0
	for e := range endings {
		if e.killed {
			r.Result.NotRun = append(r.Result.NotRun, e.spec)
			continue
		}
		n++
		r.Result.Ended = append(r.Result.Ended, e.spec)
		r.Print("[%*d/%d] %s\n", len(strconv.Itoa(len(r.specs))), n, len(r.specs), report.Line(e.spec))
		if _, e := fmt.Fprintf(r.Log, "==== %s\n%s\n", report.Line(e.spec), e.output); e != nil && err == nil {
			err = errors.Wrap(e, "writing the log")
		}
	}
	r.Result.Took = time.Since(r.Result.Started)
	return err
}

// runOne runs a spec in a process of its own, which is killed when the context ends. The file is for the process's
// report.
func (r *runner) runOne(ctx context.Context, spec types.SpecReport, file string) ending {
	if ctx.Err() != nil {
		return ending{spec: spec, killed: true}
	}
	self, err := os.Executable()
	if err != nil {
		return ending{spec: report.Broken(spec, errors.Wrap(err, "finding this program").Error())}
	}
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, self, "-kubeconfig", r.options.kubeconfig, "-run", r.options.run,
		"-spec", spec.FullText(), "-json", file)
	cmd.Stdout, cmd.Stderr = &output, &output
	err = cmd.Run()
	if ctx.Err() != nil {
		return ending{spec: spec, killed: true}
	}
	ended, unsynced := report.Read(file, spec.FullText())
	switch {
	case unsynced != nil && err != nil:
		ended = report.Broken(spec, "its process ended without a report: "+err.Error()+lastLine(output.String()))
	case unsynced != nil:
		ended = report.Broken(spec, unsynced.Error())
	case err != nil && report.Of(ended) != report.Failed:
		ended = report.Broken(ended, "its process ended with "+err.Error())
	}
	return ending{spec: ended, output: output.Bytes()}
}

// lastLine returns the last line of an output, as the end of a sentence.
func lastLine(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return ": " + last
	}
	return ""
}

// close ends the report.
func (r *runner) close() error {
	err := r.Close("specs")
	if e := os.RemoveAll(r.scratch); e != nil && err == nil {
		err = errors.Wrap(e, "removing the directory of the specs' reports")
	}
	return err
}
