// Package await waits in tests for what has to happen soon, and fails the test if it does not.
//
//	await.That(t, "reporting it", func() bool { return log.count("cannot be guarded") == 1 })
package await

import (
	"fmt"
	"testing"
	"time"
)

// between is the pause between two looks.
const between = 5 * time.Millisecond

// timeout is how long That waits: longer than a busy machine needs.
var timeout = Scaled(2 * time.Minute)

// That waits until ok returns true. What names it in the failure.
func That(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Within(t, timeout, ok, func() string { return fmt.Sprintf("%s: not within %s", what, timeout) })
}

// Within waits until ok returns true, and at most for a time. Otherwise returns the text of the failure.
func Within(t testing.TB, limit time.Duration, ok func() bool, otherwise func() string) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(between) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise())
		}
	}
}
