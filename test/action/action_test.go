// Package action tests the action for pull requests without its platform. It runs the scripts of the steps, with
// stand-ins for the programs that reach the network.
package action

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const top = "../.."

// action has the fields of the file that our action uses. Other fields, also misspelt ones, are an error.
type action struct {
	Name, Description, Author string
	Branding                  struct{ Icon, Color string }
	Inputs                    map[string]struct{ Description, Default string }
	Outputs                   map[string]struct{ Description, Value string }
	Runs                      struct {
		Using string
		Steps []step
	}
}

type step struct {
	Name, ID, If, Shell, Run string
	Env                      map[string]string
}

func readAction(t *testing.T) action {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, "action.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var a action
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&a); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAction checks the file: that it is whole, that its scripts are shell, and that what comes from outside reaches
// them by variables alone.
func TestAction(t *testing.T) {
	a := readAction(t)
	if a.Name == "" || a.Description == "" || a.Runs.Using != "composite" || len(a.Runs.Steps) != 4 {
		t.Errorf("it has no name or description, is not composite, or has other steps: %+v", a)
	}
	page, err := os.ReadFile(filepath.Join(top, "docs", "ci.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range a.Inputs {
		if in.Description == "" || !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("input %s has no description, or docs/ci.md does not have it", name)
		}
	}
	given := map[string]bool{}
	written := map[string]string{} // step -> what it writes into $GITHUB_OUTPUT
	for _, s := range a.Runs.Steps {
		if s.Shell != "bash" || strings.Contains(s.Run, "${{") || !strings.HasPrefix(s.Run, "set -euo pipefail\n") && strings.Count(s.Run, "\n") > 1 {
			t.Errorf("%s: it is not bash that ends at an error, or an expression is in the script", s.Name)
		}
		if out, err := exec.CommandContext(t.Context(), "bash", "-n", "-c", s.Run).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", s.Name, err, out)
		}
		if regexp.MustCompile(`curl(?:[^|\n]|\\\n)*\|`).MatchString(s.Run) {
			t.Errorf("%s: what is downloaded goes into a pipe", s.Name)
		}
		for _, value := range append(slices.Collect(maps.Values(s.Env)), s.If) {
			for _, m := range regexp.MustCompile(`inputs\.([a-z-]+)`).FindAllStringSubmatch(value, -1) {
				given[m[1]] = true
			}
			checkOutputs(t, value, written)
		}
		for name := range s.Env {
			if !strings.Contains(s.Run, name) && name != "GH_TOKEN" {
				t.Errorf("%s does not use $%s", s.Name, name)
			}
		}
		written[s.ID] = s.Run
	}
	for _, o := range a.Outputs {
		checkOutputs(t, o.Value, written)
	}
	if !maps.Equal(given, names(a)) {
		t.Errorf("the steps use the inputs %v", given)
	}
}

// checkOutputs checks that the outputs that a value names are written by a step before.
func checkOutputs(t *testing.T, value string, written map[string]string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`steps\.(\w+)\.outputs\.(\w+)`).FindAllStringSubmatch(value, -1) {
		if !strings.Contains(written[m[1]], `"`+m[2]+"=") {
			t.Errorf("no step gives %s", m[0])
		}
	}
}

func names(a action) map[string]bool {
	all := map[string]bool{}
	for name := range a.Inputs {
		all[name] = true
	}
	return all
}

// TestExamples checks the examples in docs/ci.md: they are YAML, and what they give the action are inputs that it has.
func TestExamples(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(top, "docs", "ci.md"))
	if err != nil {
		t.Fatal(err)
	}
	used := 0
	for _, block := range regexp.MustCompile(`(?m)(?:^    .*\n|^\n)+`).FindAllString(string(page), -1) {
		block = regexp.MustCompile(`(?m)^    `).ReplaceAllString(strings.Trim(block, "\n"), "")
		if !strings.HasPrefix(block, "n") {
			continue // commands
		}
		var any map[string]any
		if err := yaml.Unmarshal([]byte(block), &any); err != nil {
			t.Errorf("%v\n%s", err, block)
		}
		var w struct {
			Jobs map[string]struct {
				Steps []struct {
					Uses string
					With map[string]string
				}
			}
		}
		if err := yaml.Unmarshal([]byte(block), &w); err != nil {
			continue // another system's
		}
		for _, j := range w.Jobs {
			for _, s := range j.Steps {
				for name := range s.With {
					if strings.HasPrefix(s.Uses, "OWNER/NAME@v") && !names(readAction(t))[name] {
						t.Errorf("there is no input %s", name)
					}
					used++
				}
			}
		}
	}
	if used < 5 {
		t.Errorf("only %d inputs are used in the examples", used)
	}
}
