// Package promises keeps docs/promises.md true: every promise has tests, and every test that names one is listed.
package promises

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the tests' names into the page")

const (
	top  = "../.."
	page = top + "/docs/promises.md"
	// wire is where the tests are that send packets.
	wire = "test/enforce"
	// table is the test that runs the cases of test/enforce's tables, on every backend.
	table = "TestPolicies/*"
)

var (
	// number finds the promises that a test's name begins with: S33_to_S36_blocks shows four of them.
	number = regexp.MustCompile(`S(\d+)(?:_to_S(\d+))?_`)
	named  = regexp.MustCompile(`^(Test)?S\d+_\w+$`)
	// promise is a line of the page, and generated one that this test writes.
	promise   = regexp.MustCompile(`^- \*\*S(\d+)\*\* `)
	generated = regexp.MustCompile(`^  <br>`)
)

// TestEveryPromiseHasTests fails when a promise has no test with packets, or when the page does not list what there is. With -update it
// writes the page.
func TestEveryPromiseHasTests(t *testing.T) {
	tests := find(t)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	known := map[int]bool{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(line, "\n"); generated.MatchString(line) {
			continue
		}
		if last := len(want) - 1; last >= 0 && !strings.HasPrefix(line, "  ") {
			want = append(want, listed(t, current(want), tests)...)
		}
		want = append(want, line)
		if n := current(want); n > 0 {
			known[n] = true
		}
	}
	want = append(want, listed(t, current(want), tests)...) // of the last promise
	for n := 1; n <= 76; n++ {
		if !known[n] {
			t.Errorf("the page does not have S%d", n)
		}
	}
	for n := range tests {
		if !known[n] {
			t.Errorf("%v show S%d, which is no promise", tests[n], n)
		}
	}
	now := strings.Join(want, "\n") + "\n"
	if *update {
		if err := os.WriteFile(page, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(text), now); diff != "" {
		t.Errorf("docs/promises.md does not list the tests that there are (go test ./test/promises -update):\n%s", diff)
	}
}

// current returns the number of the promise that the last lines are about; 0 if they are about none, or its tests are listed.
func current(lines []string) int {
	for _, line := range slices.Backward(lines) {
		if m := promise.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[1])
			return n
		}
		if !strings.HasPrefix(line, "  ") || generated.MatchString(line) {
			return 0
		}
	}
	return 0
}

// listed returns the page's lines with a promise's tests.
func listed(t *testing.T, n int, tests map[int][]string) []string {
	if n == 0 {
		return nil
	}
	var lines []string
	onWire := false
	for _, test := range tests[n] {
		onWire = onWire || strings.HasPrefix(test, wire) && strings.Contains(test, "/*")
		lines = append(lines, "  <br>`"+test+"`")
	}
	if !onWire {
		t.Errorf("no test asks with packets for S%d, on both backends", n)
	}
	return lines
}

// find returns the tests that name each promise, as "folder Test/case".
func find(t *testing.T) map[int][]string {
	t.Helper()
	found := map[int]map[string]bool{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".cache" || d.Name() == "controlplane"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		folder, err := filepath.Rel(top, filepath.Dir(path))
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, name := range names(folder, file) {
			for _, n := range promised(name) {
				if found[n] == nil {
					found[n] = map[string]bool{}
				}
				found[n][folder+" "+name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[int][]string{}
	for n, names := range found {
		tests[n] = slices.SortedFunc(maps.Keys(names), func(a, b string) int {
			if w := strings.HasPrefix(a, wire); w != strings.HasPrefix(b, wire) {
				return map[bool]int{true: -1, false: 1}[w]
			}
			return strings.Compare(a, b)
		})
	}
	return tests
}

// names returns the tests of a file that name promises: functions, and the cases in them.
func names(folder string, file *ast.File) []string {
	var all []string
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		parent := f.Name.Name
		if folder == wire && strings.HasSuffix(parent, "Cases") {
			parent = table
		}
		if calls(f, "eachBackend") {
			parent += "/*"
		}
		if named.MatchString(f.Name.Name) {
			all = append(all, parent)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if text, err := strconv.Unquote(l.Value); err == nil && named.MatchString(text) {
					all = append(all, fmt.Sprintf("%s/%s", parent, text))
				}
			}
			return true
		})
	}
	return all
}

func calls(f *ast.FuncDecl, name string) bool {
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			called, ok := c.Fun.(*ast.Ident)
			found = found || ok && called.Name == name
		}
		return true
	})
	return found
}

// promised returns the numbers in a test's name.
func promised(name string) []int {
	var all []int
	for _, m := range number.FindAllStringSubmatch(name, -1) {
		first, _ := strconv.Atoi(m[1])
		last := first
		if m[2] != "" {
			last, _ = strconv.Atoi(m[2])
		}
		for n := first; n <= last; n++ {
			all = append(all, n)
		}
	}
	return all
}
