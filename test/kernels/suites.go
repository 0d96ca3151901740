package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/weave-npc/weave-npc/test/await"
)

// suites are the packages whose tests ask the kernel, and whether tests have a backend of iptables in their names.
var suites = []struct {
	folder   string
	backends bool
}{
	{"ipset", false}, {"iptables", true}, {"ulogd", false}, {"npc/conntrack", false}, {"npc/enforce/host", true},
	{"npc/enforce/syncer", true}, {"test/enforce/kernel", true}, {"test/enforce/policies", true},
	{"test/enforce/wire", true}, {"test/enforce/connections", true}, {"test/enforce/tiers", true},
	{"test/enforce/node", true},
}

func folders() (all []string) {
	for _, s := range suites {
		all = append(all, s.folder)
	}
	return all
}

// slowly is the factor of the timeouts of tests where the processor is simulated. Its clock follows what it computes, but
// files come at this machine's pace.
const slowly = "3"

// row is a row of the table.
type row struct {
	kernel, backend, suite  string
	passed, failed, skipped int
	took                    time.Duration // with the start of the machine
}

// test runs suites under kernels, one machine after the other, and prints a table. The status is 1 if a test failed.
func (h host) test(ctx context.Context, o options) (int, error) {
	chosen := strings.Fields(o.suites)
	if err := h.build(ctx, chosen); err != nil {
		return 0, err
	}
	status := 0
	fmt.Println("| kernel | backend | suite | passed | failed | skipped | seconds |\n|---|---|---|---|---|---|---|")
	for _, name := range strings.Fields(o.kernels) {
		for _, folder := range chosen {
			for _, backend := range backendsOf(folder, strings.Fields(o.backends)) {
				r, err := h.suite(ctx, name, backend, folder, o.only)
				if err != nil {
					return 0, err
				}
				if r.failed > 0 {
					status = 1
				}
				fmt.Printf("| %s | %s | %s | %d | %d | %d | %.0f |\n", r.kernel, r.backend, r.suite, r.passed, r.failed,
					r.skipped, r.took.Seconds())
			}
		}
	}
	return status, nil
}

// backendsOf returns which backends a suite runs with, one after the other; one dash if its tests do not differ.
func backendsOf(folder string, backends []string) []string {
	for _, s := range suites {
		if s.folder == folder && !s.backends {
			return []string{"-"}
		}
	}
	return backends
}

// command and its tests are built here: no machine compiles.
func (h host) command() string { return filepath.Join(h.cache, "tests", "weave-npc") }

func (h host) binary(folder string) string {
	return filepath.Join(h.cache, "tests", strings.ReplaceAll(folder, "/", "-")+".test")
}

// build builds the command and the tests.
func (h host) build(ctx context.Context, folders []string) error {
	builds := [][]string{{"build", "-o", h.command(), "./cmd/weave-npc"}}
	for _, folder := range folders {
		builds = append(builds, []string{"test", "-c", "-o", h.binary(folder), "./" + folder})
	}
	for _, args := range builds {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = h.top
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", args, err, said)
		}
	}
	return nil
}

// suite runs the tests of a package under a kernel, and keeps their output.
func (h host) suite(ctx context.Context, name, backend, folder, only string) (row, error) {
	r := row{kernel: name, backend: backend, suite: folder}
	args := []string{h.binary(folder), "-test.v", "-test.timeout", (h.limit - time.Minute).String(), "-test.run", only}
	for _, other := range []string{"nft", "legacy"} {
		if backend != "-" && other != backend {
			args = append(args, "-test.skip", atAnyDepth(other))
		}
	}
	env := append(os.Environ(), "WEAVE_NPC_TEST_KERNELS=1", "WEAVE_NPC_TEST_BINARY="+h.command())
	if h.simulated != "" && os.Getenv(await.SlowVariable) == "" {
		env = append(env, await.SlowVariable+"="+slowly)
	}
	fmt.Fprintf(os.Stderr, "kernels: %s, %s, %s\n", name, backend, folder)
	log, err := os.Create(strings.Join([]string{h.binary(folder), name, backend, "log"}, "."))
	if err != nil {
		return r, err
	}
	defer log.Close()
	var out bytes.Buffer
	j := job{Command: args, Dir: filepath.Join(h.top, folder), Env: env}
	start := time.Now()
	code, err := h.boot(ctx, name, j, io.MultiWriter(&out, log))
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
	}
	r.took = time.Since(start)
	r.passed, r.failed, r.skipped = count(out.String())
	if r.failed == 0 && (code != 0 || err != nil) {
		r.failed = 1 // the process did not come to its tests, or not to their end
	}
	if r.failed > 0 {
		fmt.Fprintln(os.Stderr, "kernels: what failed is in", log.Name())
	}
	return r, nil
}

// atAnyDepth returns the pattern of tests one of whose names, below the first, is that one or ends in it as a word.
func atAnyDepth(name string) string {
	var all []string
	for depth := 1; depth <= 4; depth++ {
		all = append(all, strings.Repeat("/", depth)+"(^|_)"+name+"$")
	}
	return strings.Join(all, "|")
}

var result = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`)

// count counts tests by their results, in the output of -test.v: those without subtests.
func count(output string) (passed, failed, skipped int) {
	results, parents := map[string]string{}, map[string]bool{}
	for _, m := range result.FindAllStringSubmatch(output, -1) {
		results[m[2]] = m[1]
		for above := filepath.Dir(m[2]); above != "."; above = filepath.Dir(above) {
			parents[above] = true
		}
	}
	for name, is := range results {
		switch {
		case parents[name]:
		case is == "PASS":
			passed++
		case is == "FAIL":
			failed++
		default:
			skipped++
		}
	}
	return passed, failed, skipped
}
