package docs

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

// workflow has the fields that our workflows use. Other fields, also misspelt ones, are an error.
type workflow struct {
	Name        string
	On          map[string]any
	Permissions map[string]string
	Concurrency map[string]any
	Jobs        map[string]job
}

type job struct {
	RunsOn      string `yaml:"runs-on"`
	Timeout     int    `yaml:"timeout-minutes"`
	Permissions map[string]string
	Env         map[string]string
	Container   struct {
		Image, Options string
		Volumes        []string
	}
	Steps []step
}

type step struct {
	Name, ID, Uses, Run string
	With, Env           map[string]string
}

// readStrictly reads a file of .github into what its fields are expected to be.
func readStrictly(t *testing.T, into any, path ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{top, ".github"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Fatal(err)
	}
}

// TestWorkflows checks what can be known of the workflows without their platform: their fields, that their scripts are
// shell, and that what they run and name is there.
func TestWorkflows(t *testing.T) {
	runs := map[string][]string{
		"ci.yaml":      {".ci/run", "make build", "make demo"},
		"kernels.yaml": {"make kernels"},
		"scans.yaml":   {"make vuln"},
		"site.yaml":    {"make site", "-run TestSite", "actions/upload-artifact@"},
		"release.yaml": {"make release", "buildah manifest push", "cosign sign ", "cosign sign-blob", "actions/attest-build-provenance@"},
	}
	entries, err := os.ReadDir(filepath.Join(top, ".github", "workflows"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Run(e.Name(), func(t *testing.T) {
			var w workflow
			readStrictly(t, &w, "workflows", e.Name())
			if w.Name == "" || len(w.On) == 0 || len(w.Jobs) == 0 || !maps.Equal(w.Permissions, map[string]string{"contents": "read"}) {
				t.Errorf("it has no name, event or job, or jobs may do more than read unless they say so: %v", w.Permissions)
			}
			if push, ok := w.On["push"].(map[string]any); ok {
				paths, _ := push["paths"].([]any)
				for _, p := range paths {
					checkThere(t, p.(string))
				}
			}
			var said []string
			for name, j := range w.Jobs {
				if j.RunsOn == "" || j.Timeout == 0 {
					t.Errorf("%s has no machine or no limit of its time", name)
				}
				checkSteps(t, j)
				for _, s := range j.Steps {
					said = append(said, s.Run, s.Uses)
				}
			}
			for _, r := range runs[e.Name()] {
				if !strings.Contains(strings.Join(said, "\n"), r) {
					t.Errorf("it does not run %s", r)
				}
			}
		})
		delete(runs, e.Name())
	}
	for name := range runs {
		t.Errorf("there is no %s", name)
	}
}

// checkSteps checks the steps of a job: each runs one thing, which is there.
func checkSteps(t *testing.T, j job) {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(top, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	uses := regexp.MustCompile(`^(actions|sigstore)/[a-z-]+@v\d+$`)
	output := regexp.MustCompile(`steps\.(\w+)\.outputs\.(\w+)`)
	outputs := map[string]string{}
	for _, s := range j.Steps {
		if (s.Uses == "") == (s.Run == "") {
			t.Errorf("a step %q runs both an action and a script, or neither", s.Name)
		}
		if s.Uses != "" && !uses.MatchString(s.Uses) {
			t.Errorf("%s is no action of the platform or of sigstore with a major version", s.Uses)
		}
		for _, m := range regexp.MustCompile(`\bmake ([a-z]+)`).FindAllStringSubmatch(s.Run, -1) {
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).Match(makefile) {
				t.Errorf("there is no make %s", m[1])
			}
		}
		if said, err := exec.CommandContext(t.Context(), "sh", "-n", "-c", s.Run).CombinedOutput(); err != nil {
			t.Errorf("%v: %s\n%s", err, said, s.Run)
		}
		values := slices.Concat([]string{s.Run}, slices.Collect(maps.Values(s.With)), slices.Collect(maps.Values(s.Env)))
		for _, text := range values {
			for _, f := range regexp.MustCompile(`(?:^|[\s'"])((?:\.ci|\.github|prod|docs|test)/[\w./-]+|go\.mod|\w+\.md)`).FindAllStringSubmatch(text, -1) {
				checkThere(t, f[1])
			}
			for _, o := range output.FindAllStringSubmatch(text, -1) {
				if !strings.Contains(outputs[o[1]], `echo "`+o[2]+`=`) {
					t.Errorf("no step before %q gives %s", s.Name, o[0])
				}
			}
		}
		outputs[s.ID] = s.Run
	}
}

func checkThere(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(top, path)); err != nil {
		t.Errorf("%s is not there", path)
	}
}

// TestFormsForIssues checks that the platform would show them: its kinds of fields, each with a label and an own id.
func TestFormsForIssues(t *testing.T) {
	var config struct {
		Blank bool `yaml:"blank_issues_enabled"`
	}
	readStrictly(t, &config, "ISSUE_TEMPLATE", "config.yml")
	if !config.Blank {
		t.Error("there is no way for what no form is for")
	}
	for _, name := range []string{"bug.yaml", "feature.yaml"} {
		t.Run(name, func(t *testing.T) {
			var form struct {
				Name, Description string
				Labels            []string
				Body              []struct {
					Type, ID   string
					Attributes struct {
						Label, Description, Placeholder, Render string
						Options                                 []string
					}
					Validations struct{ Required bool }
				}
			}
			readStrictly(t, &form, "ISSUE_TEMPLATE", name)
			if form.Name == "" || form.Description == "" || len(form.Body) == 0 {
				t.Error("a form needs a name, a description and a body")
			}
			seen := map[string]bool{}
			for _, f := range form.Body {
				if !slices.Contains([]string{"input", "textarea", "dropdown"}, f.Type) || f.Attributes.Label == "" || f.ID == "" || seen[f.ID] {
					t.Errorf("field %q of type %q has no label, or its id or type is not one", f.ID, f.Type)
				}
				if (f.Type == "dropdown") != (len(f.Attributes.Options) > 0) {
					t.Errorf("field %q of type %q has the options %q", f.ID, f.Type, f.Attributes.Options)
				}
				seen[f.ID] = true
			}
		})
	}
}
