// Command mutants breaks the engine and the relay in many small ways, one at a time, and shows that the tests catch
// each.
//
// A mutant is a patch in this directory. It is never applied to the tree: the go command sees it by an overlay. The
// quick tests run first. Most of them use an in-memory kernel. The tests that the patch names run only if the quick
// ones do not catch it. The quick ones do not cover the relay's module.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"
)

func main() {
	only := flag.String("only", "", "a regular expression for the names of the mutants to run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	survived, err := run(ctx, *only)
	if err != nil {
		fmt.Fprintf(os.Stderr, "mutants: %v\n", err)
		os.Exit(2)
	}
	if survived > 0 {
		os.Exit(1)
	}
}

// run runs the mutants whose names match and returns how many of them were not caught.
func run(ctx context.Context, only string) (survived int, err error) {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return 0, errors.Wrap(err, "-only")
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return 0, err
	}
	all, err := loadMutants(root)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "weave-npc-mutants-")
	if err != nil {
		return 0, errors.Wrap(err, "making a directory")
	}
	defer os.RemoveAll(dir)
	h := &hunt{root: root, dir: dir, ignored: map[string]bool{}}
	for _, m := range all {
		if wanted.MatchString(m.name) {
			h.mutants = append(h.mutants, &quarry{mutant: m})
		}
	}
	start := time.Now()
	if err := h.run(ctx); err != nil {
		return 0, err
	}
	survived = h.survived()
	fmt.Printf("\n%d mutants in %s, %d not caught\n", len(h.mutants), time.Since(start).Round(time.Second), survived)
	return survived, nil
}

// moduleRoot returns the directory of the module that this command runs in.
func moduleRoot(ctx context.Context) (string, error) {
	text, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(text)), errors.Wrap(err, "asking for the module's directory")
}

// hunt is a run over mutants.
type hunt struct {
	root, dir string
	mutants   []*quarry
	// ignored are tests that fail without any mutant.
	ignored map[string]bool
}

// quarry is a mutant and its result.
type quarry struct {
	mutant
	caught []string // by these tests
	broken error    // it was not tested to the end
	took   time.Duration
}

// quickly returns the arguments of go test for the tests that every mutant is run against.
func quickly() []string {
	return []string{
		"-skip=" + random + "|" + live,
		"./npc/enforce/controller", "./npc/enforce/dataplane", "./ipset", "./iptables",
	}
}

// run tests every mutant quickly, and then those that survive by the tests that they name.
func (h *hunt) run(ctx context.Context) error {
	if slices.ContainsFunc(h.mutants, func(q *quarry) bool { return q.ofEngine() }) {
		if err := h.baseline(ctx, ".", quickly()...); err != nil {
			return err
		}
	}
	var rest []*quarry
	for _, q := range h.mutants {
		if !q.ofEngine() {
			rest = append(rest, q)
			continue
		}
		if err := h.test(ctx, q, ".", quickly()...); err != nil {
			return err
		}
		if len(q.caught) > 0 || q.broken != nil {
			q.print()
		} else {
			rest = append(rest, q)
		}
	}
	if err := h.baselines(ctx, rest); err != nil {
		return err
	}
	for _, q := range rest {
		for _, t := range q.runs {
			dir, pkg := module(t.pkg)
			if err := h.test(ctx, q, dir, "-count=1", "-failfast", "-skip="+random, "-run="+t.run, pkg); err != nil {
				return err
			}
			if len(q.caught) > 0 || q.broken != nil {
				break
			}
		}
		q.print()
	}
	return nil
}

// baselines runs, without a mutant, the tests that mutants name.
func (h *hunt) baselines(ctx context.Context, mutants []*quarry) error {
	patterns := map[string][]string{} // package -> regular expressions
	for _, q := range mutants {
		for _, t := range q.runs {
			if !slices.Contains(patterns[t.pkg], t.run) {
				patterns[t.pkg] = append(patterns[t.pkg], t.run)
			}
		}
	}
	for pkg, runs := range patterns {
		dir, pkg := module(pkg)
		if err := h.baseline(ctx, dir, "-count=1", "-skip="+random, "-run="+strings.Join(runs, "|"), pkg); err != nil {
			return err
		}
	}
	return nil
}

// baseline runs tests of a module without a mutant.
func (h *hunt) baseline(ctx context.Context, dir string, args ...string) error {
	failed, err := goTest(ctx, filepath.Join(h.root, dir), "", baselineTime, args...)
	for _, name := range failed {
		fmt.Printf("fails without a mutant, and catches none: %s\n", name)
		h.ignored[name] = true
	}
	return errors.Wrap(err, "without a mutant")
}

// test has a mutant tested, by tests of the module in dir. The error is that of a run that was ended.
func (h *hunt) test(ctx context.Context, q *quarry, dir string, args ...string) error {
	start := time.Now()
	defer func() { q.took += time.Since(start) }()
	files, err := os.MkdirTemp(h.dir, q.name+"-")
	if err != nil {
		return errors.Wrap(err, "making a directory")
	}
	overlay, err := q.overlay(h.root, files)
	if err != nil {
		return errors.Wrap(err, "writing an overlay")
	}
	failed, err := goTest(ctx, filepath.Join(h.root, dir), overlay, mutantTime, args...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	q.broken = err
	q.caught = slices.DeleteFunc(failed, func(name string) bool { return h.ignored[name] })
	return nil
}

func (q *quarry) print() {
	took := q.took.Round(time.Second)
	switch {
	case q.broken != nil:
		fmt.Printf("BROKEN    %5s  %s: %v\n", took, q.name, q.broken)
	case len(q.caught) == 0:
		fmt.Printf("SURVIVED  %5s  %s: %s\n", took, q.name, q.about)
	default:
		fmt.Printf("caught    %5s  %s: %s\n", took, q.name, first(q.caught, 3))
	}
}

// first names the first few.
func first(names []string, n int) string {
	if more := len(names) - n; more > 0 {
		return strings.Join(names[:n], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

func (h *hunt) survived() int {
	n := 0
	for _, q := range h.mutants {
		if len(q.caught) == 0 {
			n++
		}
	}
	return n
}
