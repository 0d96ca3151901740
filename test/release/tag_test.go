package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository makes a clone with a changelog that has a version, and prod/tag.
func repository(t *testing.T) (dir string, git func(args ...string) string) {
	t.Helper()
	dir = t.TempDir()
	git = func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	git("init", "-q")
	git("config", "user.name", "a")
	git("config", "user.email", "a@example.com")
	write(t, filepath.Join(dir, "CHANGELOG.md"), "# Changelog\n\n## Unreleased\n\n## [1.3.0-rc.1] - 2026-11-24\n\n- x\n\n## 1.2.30 - 2026-11-23\n\n- y\n")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	return dir, git
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTag checks what make release tags, and what it refuses to.
func TestTag(t *testing.T) {
	script, err := filepath.Abs(filepath.Join(top, "prod", "tag"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, version, file, tag, want string }{
		{"a_version", "v1.2.30", "", "", ""},
		{"a_candidate", "v1.3.0-rc.1", "", "", ""},
		{"no_heading", "v1.2.3", "", "", `CHANGELOG.md has no heading "## 1.2.3"`},
		{"unreleased", "vUnreleased", "", "", "vUnreleased is no version"},
		{"no_v", "1.2.30", "", "", "1.2.30 is no version"},
		{"more_than_a_version", "v1.2.30;id", "", "", "is no version"},
		{"an_option", "-d", "", "", "-d is no version"},
		{"a_leading_zero", "v1.02.30", "", "", "is no version"},
		{"nothing", "", "", "", "is no version"},
		{"not_committed", "v1.2.30", "CHANGELOG.md", "", "there is what is not committed"},
		{"not_added", "v1.2.30", "new.go", "", "there is what is not committed"},
		{"there_already", "v1.2.30", "", "v1.2.30", "v1.2.30 exists already"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, git := repository(t)
			if c.file != "" {
				write(t, filepath.Join(dir, c.file), "changed")
			}
			if c.tag != "" {
				git("tag", c.tag)
			}
			before := git("tag")
			cmd := exec.CommandContext(t.Context(), script, c.version)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if c.want != "" {
				if err == nil || !strings.HasPrefix(string(out), "tag: ") || !strings.Contains(string(out), c.want) || git("tag") != before {
					t.Errorf("%v, %q, and there are the tags %q", err, out, git("tag"))
				}
				return
			}
			if err != nil || git("cat-file", "-t", c.version) != "tag\n" || git("describe", "--exact-match") != c.version+"\n" {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
