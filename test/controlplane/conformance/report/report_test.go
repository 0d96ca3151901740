package report

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2/reporters"
	"github.com/onsi/ginkgo/v2/types"
)

const (
	inNetpol   = "[sig-network] Netpol NetworkPolicy between server and client "
	denyAll    = inNetpol + "should support a 'default-deny-all' policy [Feature:NetworkPolicy]"
	operations = "[sig-network] Netpol API should support creating NetworkPolicy API operations"
)

// The files were recorded from runs of one spec each; two entries were kept, without what was printed.
func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		file, spec string
		edit       func(string) string // of the recorded report
		want       Verdict
		reason     string
		err        string
	}{
		"passed": {file: "passed.json", spec: operations, want: Passed, reason: "passed"},
		"failed": {file: "failed.json", spec: denyAll, want: Failed, reason: "Had 6 wrong results in reachability matrix"},
		"timed out": {file: "failed.json", spec: denyAll, edit: replace(`"State": "failed"`, `"State": "timedout"`),
			want: Failed, reason: "Had 6 wrong results in reachability matrix"},
		"skipped by itself": {file: "passed.json", spec: operations,
			edit: replace(`"State": "passed"`, `"State": "skipped", "Failure": {"Message": "not on this cluster\nwhy"}`),
			want: Skipped, reason: "not on this cluster"},
		"not selected": {file: "passed.json", spec: denyAll, want: Failed, reason: "it did not run"},
		"unknown":      {file: "passed.json", spec: "x", err: `there is no spec "x"`},
		"passed in a suite that failed": {file: "passed.json", spec: operations, edit: func(s string) string {
			s = replace(`"SpecialSuiteFailureReasons": null`, `"SpecialSuiteFailureReasons": ["Suite Timeout Elapsed"]`)(s)
			return replace(`"SuiteSucceeded": true`, `"SuiteSucceeded": false`)(s)
		}, want: Failed, reason: "the suite failed: Suite Timeout Elapsed"},
		"something around it failed": {file: "passed.json", spec: operations, edit: replace(`"SpecReports": [`, `"SpecReports": [
			{"LeafNodeType": "AfterSuite", "State": "panicked", "Failure": {"ForwardedPanic": "boom"}},`), want: Failed, reason: "boom"},
		"cut off": {file: "passed.json", spec: operations, edit: func(s string) string { return s[:len(s)/2] },
			err: "unexpected end of JSON"},
		"no suite":  {file: "passed.json", spec: operations, edit: func(string) string { return "[]" }, err: "is of 0 suites"},
		"no report": {file: "absent.json", spec: operations, err: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", c.file)
			if c.edit != nil {
				content, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				file = filepath.Join(t.TempDir(), "report.json")
				edited := c.edit(string(content))
				if edited == string(content) {
					t.Fatal("the edit changes nothing")
				}
				if err := os.WriteFile(file, []byte(edited), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			spec, err := Read(file, c.spec)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := Of(spec); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if got := reason(spec); got != c.reason {
				t.Errorf("reason %q, want %q", got, c.reason)
			}
		})
	}
}

func replace(from, to string) func(string) string {
	return func(s string) string { return strings.Replace(s, from, to, 1) }
}

// spec returns a spec of a given name and state.
func spec(name string, state types.SpecState, message string) types.SpecReport {
	return types.SpecReport{ContainerHierarchyTexts: []string{"[sig-network] Netpol", "in a cluster"}, LeafNodeText: name,
		LeafNodeType: types.NodeTypeIt, State: state, RunTime: 1500 * time.Millisecond, Failure: types.Failure{Message: message}}
}

func TestSummary(t *testing.T) {
	passed := spec("allows [Feature:NetworkPolicy]", types.SpecStatePassed, "")
	failed := spec("denies [Feature:NetworkPolicy]", types.SpecStateFailed, "\n  Had 2 wrong results\n  in the matrix")
	skipped := Skip(spec("SCTP", types.SpecStatePassed, ""), "no sockets")
	for name, c := range map[string]struct {
		run  Run
		ok   bool
		want string
	}{
		"all passed": {Run{Ended: []types.SpecReport{passed, passed}, Took: 61 * time.Second}, true,
			"2 passed, 0 failed, 0 skipped, in 1m1s\n"},
		"some skipped": {Run{Ended: []types.SpecReport{skipped, passed}}, true, "1 passed, 0 failed, 1 skipped, in 0s\n"},
		"one failed": {Run{Ended: []types.SpecReport{passed, failed}}, false,
			"failed:\n  Netpol in a cluster denies\n      Had 2 wrong results\n\n1 passed, 1 failed, 0 skipped, in 0s\n"},
		"one broke": {Run{Ended: []types.SpecReport{passed, Broken(passed, "no report: exit status 2")}}, false,
			"failed:\n  Netpol in a cluster allows\n      no report: exit status 2\n\n1 passed, 1 failed, 0 skipped, in 0s\n"},
		"one interrupted": {Run{Ended: []types.SpecReport{passed, spec("x", types.SpecStateInterrupted, "")}}, false,
			"failed:\n  Netpol in a cluster x\n      interrupted\n\n1 passed, 1 failed, 0 skipped, in 0s\n"},
		"some not run": {Run{Ended: []types.SpecReport{passed}, NotRun: []types.SpecReport{failed, passed}}, false,
			"1 passed, 0 failed, 0 skipped, 2 not run, in 0s\n"},
		"only skipped": {Run{Ended: []types.SpecReport{skipped}}, false, "0 passed, 0 failed, 1 skipped, in 0s\n"},
		"nothing":      {Run{}, false, "0 passed, 0 failed, 0 skipped, in 0s\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.run.OK(); got != c.ok {
				t.Errorf("OK is %t, want %t", got, c.ok)
			}
			var b strings.Builder
			c.run.Summary(&b)
			if b.String() != c.want {
				t.Errorf("got\n%swant\n%s", b.String(), c.want)
			}
		})
	}
}

func TestLine(t *testing.T) {
	for _, c := range []struct {
		spec types.SpecReport
		want string
	}{
		{spec("allows [Feature:NetworkPolicy]", types.SpecStatePassed, ""), "ok      1.5s  Netpol in a cluster allows"},
		{spec("denies", types.SpecStateTimedout, "x"), "FAIL    1.5s  Netpol in a cluster denies"},
		{spec("waits", types.SpecStatePending, ""), "skip    1.5s  Netpol in a cluster waits"},
	} {
		if got := Line(c.spec); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestJUnit(t *testing.T) {
	failed, err := Read(filepath.Join("testdata", "failed.json"), denyAll)
	if err != nil {
		t.Fatal(err)
	}
	passed := spec("allows", types.SpecStatePassed, "")
	run := Run{Suite: "suite", Took: time.Minute, Ended: []types.SpecReport{passed, failed, Skip(passed, "no sockets")},
		NotRun: []types.SpecReport{passed}}
	file := filepath.Join(t.TempDir(), "junit.xml")
	if err := run.JUnit(file); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got reporters.JUnitTestSuites
	if err := xml.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.TestSuites) != 1 || got.Tests != 4 || got.Failures != 1 || got.TestSuites[0].Skipped != 2 {
		t.Fatalf("got %+v, want 4 tests: 1 failed, 2 skipped", got)
	}
	cases := got.TestSuites[0].TestCases
	if f := cases[1].Failure; f == nil || !strings.HasPrefix(f.Message, "Had 6 wrong results") || cases[1].Name != denyAll {
		t.Errorf("got %+v, want the failure of %s", cases[1], denyAll)
	}
	for i, want := range map[int]string{2: "no sockets", 3: "not run"} {
		if s := cases[i].Skipped; s == nil || !strings.Contains(s.Message, want) {
			t.Errorf("got %+v, want it skipped because of %q", cases[i], want)
		}
	}
}
