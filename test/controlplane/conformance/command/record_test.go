package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/test/controlplane/conformance/command"
)

// TestConclude ends runs: all that is to end is ended, whatever went wrong before, and the first error counts.
func TestConclude(t *testing.T) {
	passed, failed := types.SpecReport{State: types.SpecStatePassed}, types.SpecReport{State: types.SpecStateFailed}
	run, end, cleanup := errors.New("run"), errors.New("end"), errors.New("cleanup")
	for name, c := range map[string]struct {
		ended             []types.SpecReport
		run, cleanup, end error
		status            int
		err               error
	}{
		"all passed":          {[]types.SpecReport{passed, passed}, nil, nil, nil, command.Passed, nil},
		"one failed":          {[]types.SpecReport{passed, failed}, nil, nil, nil, command.Failed, nil},
		"nothing ran":         {nil, nil, nil, nil, command.Failed, nil},
		"the run":             {[]types.SpecReport{passed}, run, nil, end, command.Failed, run},
		"the end":             {[]types.SpecReport{passed}, nil, nil, end, command.Failed, end},
		"what is left behind": {[]types.SpecReport{passed}, nil, cleanup, nil, command.Passed, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := command.NewRecord(filepath.Join(t.TempDir(), "new"), "suite")
			if err != nil {
				t.Fatal(err)
			}
			r.Result.Ended = c.ended
			order := ""
			status, err := r.Conclude(c.run, func() error { order += "cleanup "; return c.cleanup }, func() error {
				order += "end"
				if err := r.Close("tests"); err != nil {
					t.Error(err)
				}
				return c.end
			})
			if status != c.status || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || order != "cleanup end" {
				t.Errorf("status %d, error %v, done: %s", status, err, order)
			}
		})
	}
}

// TestRecord looks at the files of a record, and at where one cannot be.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	r, err := command.NewRecord(dir, "suite")
	if err != nil {
		t.Fatal(err)
	}
	r.Print("%d of %d\n", 1, 2)
	if err := r.Close("tests"); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"summary.txt": "1 of 2\n\n0 passed, 0 failed, 0 skipped", "log.txt": "", "junit.xml": `name="suite"`} {
		content, err := os.ReadFile(r.File(name))
		if err != nil || !strings.Contains(string(content), want) {
			t.Errorf("%s: %v, no %q in:\n%s", name, err, want, content)
		}
	}
	if _, err := command.NewRecord(r.File("log.txt"), "suite"); err == nil || !strings.Contains(err.Error(), "REPORT=DIR") {
		t.Errorf("in a file: %v", err)
	}
}
