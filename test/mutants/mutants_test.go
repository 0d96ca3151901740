package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pkg/errors"
)

// loaded returns the mutants, applied to the present tree.
func loaded(t *testing.T) (root string, mutants []mutant) {
	t.Helper()
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if mutants, err = loadMutants(root); err != nil {
		t.Fatalf("%v\nBring the patch up to date with the code, or remove it.", err)
	}
	return root, mutants
}

// TestEveryPatchAppliesAndCompiles finds stale patches before mutants are run.
func TestEveryPatchAppliesAndCompiles(t *testing.T) {
	root, mutants := loaded(t)
	if len(mutants) < 25 {
		t.Errorf("there are %d mutants", len(mutants))
	}
	compilers := map[string]*compiler{} // module -> with what it imports in the versions that it has
	for _, dir := range []string{".", relayModule} {
		compilers[dir] = newCompiler(t, root, dir, mutants)
	}
	for _, m := range mutants {
		for _, pkg := range m.packages() {
			dir, _ := module(pkg)
			if err := compilers[dir].check(pkg, m.changed); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	}
}

// compiler checks the types of packages, with what they import as the go command has compiled it.
type compiler struct {
	root     string
	files    map[string][]string  // package, from the root as ./npc -> its files
	parsed   map[string]*ast.File // file, from the root -> its syntax without a mutant
	fset     *token.FileSet
	importer types.Importer
}

// newCompiler returns a compiler of what mutants change of one module.
func newCompiler(t *testing.T, root, dir string, mutants []mutant) *compiler {
	t.Helper()
	var pkgs []string
	for _, m := range mutants {
		for _, pkg := range m.packages() {
			if in, inside := module(pkg); in == dir {
				pkgs = append(pkgs, inside)
			}
		}
	}
	slices.Sort(pkgs)
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-json=Dir,ImportPath,GoFiles,Export"},
		slices.Compact(pkgs)...)...)
	cmd.Dir = filepath.Join(root, dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	list, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	c := &compiler{root: root, files: map[string][]string{}, parsed: map[string]*ast.File{}, fset: token.NewFileSet()}
	compiled := map[string]string{} // import path -> file
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var p struct {
			Dir, ImportPath, Export string
			GoFiles                 []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		compiled[p.ImportPath] = p.Export
		if dir, err := filepath.Rel(root, p.Dir); err == nil {
			c.files["./"+dir] = p.GoFiles
		}
	}
	c.importer = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) })
	return c
}

// check checks a package with some files replaced.
func (c *compiler) check(pkg string, changed map[string]string) error {
	var files []*ast.File
	for _, name := range c.files[pkg] {
		f, err := c.parse(filepath.Join(pkg, name), changed)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	config := types.Config{Importer: c.importer}
	_, err := config.Check(pkg, c.fset, files, nil)
	return err
}

func (c *compiler) parse(path string, changed map[string]string) (f *ast.File, err error) {
	if text, ok := changed[path]; ok {
		return parser.ParseFile(c.fset, path, text, parser.SkipObjectResolution)
	}
	if c.parsed[path] == nil {
		c.parsed[path], err = parser.ParseFile(c.fset, filepath.Join(c.root, path), nil, parser.SkipObjectResolution)
	}
	return c.parsed[path], err
}

// TestEveryMutantNamesTestsThatExist knows tests by the functions that they are.
func TestEveryMutantNamesTestsThatExist(t *testing.T) {
	root, mutants := loaded(t)
	text := map[string]string{} // package -> its tests
	for _, m := range mutants {
		for _, run := range m.runs {
			if text[run.pkg] == "" {
				text[run.pkg] = testFiles(t, filepath.Join(root, run.pkg))
			}
			name, _, _ := strings.Cut(run.run, "/")
			if name = strings.Trim(name, "^$"); !strings.Contains(text[run.pkg], "\nfunc "+name+"(t *testing.T)") {
				t.Errorf("%s: there is no %s in %s", m.name, name, run.pkg)
			}
		}
	}
}

func testFiles(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s has no tests: %v", dir, err)
	}
	var b strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	return b.String()
}

func TestModuleOfAPackage(t *testing.T) {
	for pkg, want := range map[string][2]string{
		"./npc/enforce/internal/failclosed": {".", "./npc/enforce/internal/failclosed"},
		"./cmd/weave-npc":                   {".", "./cmd/weave-npc"},
		"./cmd/weave-npc-relay":             {"./cmd/weave-npc-relay", "."},
		"./cmd/weave-npc-relay/auth":        {"./cmd/weave-npc-relay", "./auth"},
		"./cmd/weave-npc-relayed/other":     {".", "./cmd/weave-npc-relayed/other"},
	} {
		if dir, inside := module(pkg); dir != want[0] || inside != want[1] {
			t.Errorf("%s is %s of %s", pkg, inside, dir)
		}
	}
}

func TestApplyFindsThePlace(t *testing.T) {
	const (
		diff = "what it is\n\nField: x\n--- a/f.go\n+++ b/f.go\n@@ -1,5 +1,5 @@ func f() {\n a\n b\n-old\n+new\n c\n d\n"
		want = "new"
	)
	for name, c := range map[string]struct{ text, want string }{
		"as it was":                   {"a b old c d", "a b new c d"},
		"moved":                       {"x y z a b old c d", "x y z a b new c d"},
		"with other lines near":       {"q b old c q", "q b new c q"},
		"with one near only":          {"q old c q", ""},
		"with none near":              {"q old q", ""},
		"one of two, by what is near": {"old a b old c d old", "a b new"},
		"one of two that are alike":   {"a b old c d a b old c d", ""},
		"gone":                        {"a b c d", ""},
		"done":                        {"a b new c d", ""},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := parseDiff(diff)
			if err != nil {
				t.Fatal(err)
			}
			got, err := applyAll(strings.ReplaceAll(c.text, " ", "\n"), files["f.go"])
			got = strings.ReplaceAll(got, "\n", " ")
			if (err != nil) != (c.want == "") || !strings.Contains(got, c.want) || err == nil && strings.Count(got, want) != 1 {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestInsertionsNeedTheLinesNearThem(t *testing.T) {
	files, err := parseDiff("--- a/f.go\n+++ b/f.go\n@@ -1,2 +1,3 @@\n a\n+new\n b\n")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := applyAll("x\na\nb", files["f.go"]); err != nil || got != "x\na\nnew\nb" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := applyAll("x\ny", files["f.go"]); err == nil {
		t.Errorf("got %q", got)
	}
}

// TestWhatIsNoCatch checks that only a failed test counts as having caught a mutant.
func TestWhatIsNoCatch(t *testing.T) {
	const pkg = `,"Package":"github.com/weave-npc/weave-npc/npc"`
	for name, c := range map[string]struct {
		stream string
		failed []string
		broken bool
	}{
		"passed": {`{"Action":"pass"` + pkg + `,"Test":"TestA"}` + "\n" + `{"Action":"pass"` + pkg + `}`, nil, false},
		"innermost": {`{"Action":"fail"` + pkg + `,"Test":"TestA/b"}` + "\n" + `{"Action":"fail"` + pkg + `,"Test":"TestA"}` + "\n" +
			`{"Action":"fail"` + pkg + `}`, []string{"npc TestA/b"}, false},
		"does not compile": {`{"ImportPath":"x","Action":"build-output","Output":"# x\n"}` + "\n" + `{"ImportPath":"x","Action":"build-fail"}` + "\n" +
			`{"Action":"fail"` + pkg + `}`, nil, true},
		"ended before its tests": {`{"Action":"output"` + pkg + `,"Output":"no command\n"}` + "\n" + `{"Action":"fail"` + pkg + `}`, nil, true},
		"timed out": {`{"Action":"output"` + pkg + `,"Test":"TestA","Output":"panic: test timed out after 1s\n"}` + "\n" +
			`{"Action":"fail"` + pkg + `,"Test":"TestA"}` + "\n" + `{"Action":"fail"` + pkg + `}`, []string{"npc TestA"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			failed, broken := readEvents([]byte(c.stream))
			if !slices.Equal(failed, c.failed) || (broken != "") != c.broken {
				t.Errorf("failed: %q, broken: %q", failed, broken)
			}
		})
	}
}
