// Package imports checks that the linter has a rule for the imports of every package of this repository.
package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	top    = "../.."
	module = "github.com/weave-npc/weave-npc"
)

// rule is what a rule of depguard has, as far as it is used.
type rule struct {
	ListMode string `json:"list-mode"`
	Files    []string
	Deny     []struct{ Pkg string }
	Allow    []string
}

// TestEveryPackageHasAnImportRule checks that every package, except commands and tests, has a rule by which the linter refuses imports that are
// not listed, and that the package imports everything in the list.
func TestEveryPackageHasAnImportRule(t *testing.T) {
	rules := readRules(t)
	found := 0
	for _, p := range listPackages(t) {
		folder := strings.TrimPrefix(p.ImportPath, module+"/")
		if p.Name == "main" || strings.HasPrefix(folder, "test/") {
			continue
		}
		found++
		r, ok := rules[folder]
		delete(rules, folder)
		files := []string{"${base-path}/" + folder + "/*.go", "!$test"}
		if !ok || r.ListMode != "lax" || !slices.Equal(r.Files, files) || len(r.Deny) != 1 || r.Deny[0].Pkg != module {
			t.Errorf("depguard has no rule called %[1]s with\n  list-mode: lax\n  files: %[2]q\n  deny: *own\nand a list allow of imports", folder, files)
		}
		for _, a := range r.Allow {
			if path, exact := strings.CutSuffix(a, "$"); !exact || !slices.Contains(p.Imports, path) {
				t.Errorf("the depguard rule %s allows %s, which the package does not import, or which does not end in $", folder, a)
			}
		}
	}
	if found == 0 {
		t.Error("there is no package")
	}
	for name := range rules {
		if name != "leaves" && name != "model" {
			t.Errorf("the depguard rule %s belongs to no package", name)
		}
	}
}

func readRules(t *testing.T) map[string]rule {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, ".golangci.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct{ Rules map[string]rule }
			}
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	return config.Linters.Settings.Depguard.Rules
}

// listed is what go list prints of a package, as far as it is used.
type listed struct {
	ImportPath, Name string
	Imports          []string
}

func listPackages(t *testing.T) (packages []listed) {
	t.Helper()
	list := exec.Command("go", "list", "-json=ImportPath,Name,Imports", "./...")
	list.Dir = top
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}
