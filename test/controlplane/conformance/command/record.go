package command

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/test/controlplane/conformance/report"
)

// Record is the result of a run, and the files that hold it.
type Record struct {
	Result report.Run
	// Log holds what the suite printed.
	Log     *os.File
	dir     string
	summary *os.File // what the command prints
}

// NewRecord begins the record of a suite's run in a directory, and makes its files.
func NewRecord(dir, suite string) (*Record, error) {
	r := &Record{dir: dir, Result: report.Run{Suite: suite, Started: time.Now()}}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		r.Log, err = os.Create(r.File("log.txt"))
	}
	if err == nil {
		r.summary, err = os.Create(r.File("summary.txt"))
	}
	return r, errors.Wrap(err, "making the report (REPORT=DIR says where)")
}

// File returns the path of a file of the record.
func (r *Record) File(name string) string { return filepath.Join(r.dir, name) }

// Print prints, and writes the same to the summary.
func (r *Record) Print(format string, args ...any) {
	fmt.Fprintf(io.MultiWriter(r.summary, os.Stdout), format, args...)
}

// Close prints the summary and the paths of the record's files. What is the subject of the log, and also has the paths
// of further files.
func (r *Record) Close(what string, also ...string) error {
	var b strings.Builder
	r.Result.Summary(&b)
	r.Print("\n%s", b.String())
	junit := r.File("junit.xml")
	err := r.Result.JUnit(junit)
	files := append([]string{r.summary.Name(), junit}, also...)
	fmt.Printf("report: %s; what the %s did: %s\n", strings.Join(files, ", "), what, r.Log.Name())
	for _, f := range []*os.File{r.Log, r.summary} {
		if e := f.Close(); e != nil && err == nil {
			err = errors.Wrap(e, "writing the report")
		}
	}
	return err
}

// Conclude ends a run that has come to an error or to none: it removes what the suite left in the cluster, closes the
// record, and returns the exit status with the first error of the run and the record.
func (r *Record) Conclude(err error, cleanup, end func() error) (int, error) {
	if failed := cleanup(); failed != nil {
		complain(failed)
	}
	if ended := end(); err == nil {
		err = ended
	}
	if err != nil || !r.Result.OK() {
		return Failed, err
	}
	return Passed, nil
}
