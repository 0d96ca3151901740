package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
)

const (
	// random matches tests that must not catch a mutant: they do not catch it every time.
	random = "Random"
	// live matches tests of package npc that use a real kernel: they are slow, and a busy machine may make one fail. Of
	// alternatives the go command takes the first that matches a test or may match a part of it: those for whole tests
	// come first.
	live = "^Test(AFight|ANewerLayout|AProgram|ASetIsDestroyed|ASetOfOurs|DryRunEnds|How|LongClosed|RulesOfNFT|" +
		"SetOperations|Strays|TheLock|TwoOnOneNode|WhatFailed|WhatMakesItBlind)|/^(nft|legacy)$|//^(nft|legacy)$"
	// mutantTime is how long the tests of a package may take with a mutant, baselineTime without one.
	mutantTime   = 100 * time.Second
	baselineTime = 10 * time.Minute
)

// goTest runs tests in a module's directory, with an overlay if it is not empty, and returns the names of those that
// failed, as "npc TestX/part": only the innermost ones, in the order of their ends. A failure outside a test is an
// error.
func goTest(ctx context.Context, dir, overlay string, limit time.Duration, args ...string) ([]string, error) {
	args = append([]string{"test", "-json", "-vet=off", "-timeout=" + limit.String()}, args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = os.Environ()
	if overlay != "" {
		// By the environment, so that a test that builds a command builds the mutant.
		cmd.Env = append(cmd.Env, "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = limit
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	failed, broken := readEvents(stdout)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case broken != "":
		return nil, errors.Errorf("a package's tests did not run to their end:\n%s%s", broken, stderr.String())
	case err != nil && len(failed) == 0:
		return nil, errors.Errorf("%v: %s", err, stderr.String())
	}
	return failed, nil
}

// event has the fields of a line of go test -json that matter here, as cmd/test2json describes them.
type event struct {
	Action, Package, Test, Output string
}

// readEvents returns the tests that failed, and the last words of what failed without one.
func readEvents(stream []byte) (failed []string, broken string) {
	var output strings.Builder
	tests := map[string]int{} // package -> how many of its tests failed
	for line := range strings.Lines(string(stream)) {
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			continue
		}
		switch {
		case e.Output != "":
			output.WriteString(e.Output)
			if strings.HasPrefix(e.Output, "panic: test timed out") {
				broken = e.Output
			}
		case e.Action == "build-fail" || e.Action == "fail" && e.Test == "" && tests[e.Package] == 0:
			text := output.String()
			broken = text[max(0, len(text)-2000):]
		case e.Action == "fail" && e.Test != "":
			tests[e.Package]++
			failed = append(failed, shortName(e.Package)+" "+e.Test)
		}
	}
	inner := func(name string) bool {
		return !slices.ContainsFunc(failed, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	}
	return slices.DeleteFunc(slices.Clone(failed), func(name string) bool { return !inner(name) }), broken
}

// shortName returns a package's path below the root.
func shortName(pkg string) string {
	const module = "github.com/weave-npc/weave-npc/"
	return strings.TrimPrefix(pkg, module)
}
