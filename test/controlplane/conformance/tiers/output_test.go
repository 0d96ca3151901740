package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/weave-npc/weave-npc/test/controlplane/conformance/report"
)

// output is what Go's tests print: a subtest that passed after an attempt that did not, one that failed, one that
// failed without a word of ours, and a test that failed around its subtests.
const output = `^=== RUN   ClusterNetworkPolicy
    suite.go:157: Test Setup: Applying base manifests
^=== RUN   ClusterNetworkPolicy/A
^=== RUN   ClusterNetworkPolicy/A/allow_it;_at_once
    helper.go:71: Expected connection to succeed from x to y, but instead it miserably failed. stderr: TIMEOUT
^--- PASS: ClusterNetworkPolicy/A/allow_it;_at_once (6.70s)
^=== NAME  ClusterNetworkPolicy/A
^=== RUN   ClusterNetworkPolicy/A/deny_it
    helper.go:71: FAILED Command was [/agnhost connect]
    helper.go:71: Expected connection to fail from x to y, but instead it successfully connected.
    helper.go:70:
        	Error Trace:	helper.go:70
        	Error:      	Condition never satisfied
^--- FAIL: ClusterNetworkPolicy/A/deny_it (10.00s)
^=== NAME  ClusterNetworkPolicy/A
    apply.go:154: Deleting a ClusterNetworkPolicy
^--- FAIL: ClusterNetworkPolicy/A (16.70s)
^=== NAME  ClusterNetworkPolicy
^=== RUN   ClusterNetworkPolicy/B
^=== RUN   ClusterNetworkPolicy/B/pass_it
        	Error:      	Received unexpected error:
    no newline^--- FAIL: ClusterNetworkPolicy/B/pass_it (0.10s)
^=== NAME  ClusterNetworkPolicy/B
^--- FAIL: ClusterNetworkPolicy/B (0.20s)
^=== RUN   ClusterNetworkPolicy/C
    apply.go:150:
        	Error:      	error creating resource
^--- FAIL: ClusterNetworkPolicy/C (0.30s)
^--- FAIL: ClusterNetworkPolicy (20.00s)
FAIL
`

func TestRead(t *testing.T) {
	planned := map[string]subtest{}
	for _, s := range []subtest{{test: "A", name: "allow it; at once"}, {test: "A", name: "deny it"}, {test: "B", name: "pass it"},
		{test: "C", name: "never starts"}} {
		planned[s.path()] = s
	}
	var log strings.Builder
	var got []string
	r := reader{planned: planned, log: &log, ended: func(spec types.SpecReport) {
		got = append(got, fmt.Sprintf("%s: %s", report.Line(spec), spec.Failure.Message))
	}}
	if err := r.read(strings.NewReader(strings.ReplaceAll(output, "^", mark))); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ok      6.7s  A allow it; at once: ",
		"FAIL   10.0s  A deny it: Expected connection to fail from x to y, but instead it successfully connected.",
		"FAIL    0.1s  B pass it: Received unexpected error:",
		"FAIL    0.3s  C (outside of its subtests): error creating resource",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if log.String() != strings.ReplaceAll(output, "^", "") {
		t.Errorf("the log is not what was printed:\n%s", log.String())
	}
}
