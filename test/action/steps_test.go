package action

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runner is a machine that runs steps.
type runner struct {
	t    *testing.T
	dir  string // the top of the repository
	temp string
	bin  string // programs that are found first
	env  []string
}

func newRunner(t *testing.T) *runner {
	r := &runner{t: t, dir: t.TempDir(), temp: t.TempDir(), bin: t.TempDir()}
	r.env = []string{"PATH=" + r.bin + ":" + os.Getenv("PATH"), "HOME=" + r.temp, "RUNNER_TEMP=" + r.temp, "RUNNER_OS=Linux", "RUNNER_ARCH=X64",
		"GITHUB_OUTPUT=" + r.temp + "/output", "GITHUB_STEP_SUMMARY=" + r.temp + "/summary", "SERVER=https://github.com",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null"}
	return r
}

// program puts a shell script where it is found first.
func (r *runner) program(name, script string) {
	r.write(filepath.Join(r.bin, name), "#!/bin/bash\n"+script)
}

func (r *runner) write(path, text string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

// read returns a file of the directory for temporary ones; none is empty.
func (r *runner) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(r.temp, name))
	return string(text)
}

// run runs the step of a name, and returns its output and whether it failed.
func (r *runner) run(name string, env ...string) (out string, failed bool) {
	r.t.Helper()
	for _, s := range readAction(r.t).Runs.Steps {
		if s.Name != name {
			continue
		}
		cmd := exec.CommandContext(r.t.Context(), "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", s.Run)
		cmd.Dir = r.dir
		cmd.Env = r.env
		given := map[string]bool{}
		for _, e := range env {
			variable, _, _ := strings.Cut(e, "=")
			given[variable] = true
			cmd.Env = append(cmd.Env, e)
		}
		for variable := range s.Env {
			if !given[variable] && variable != "SERVER" {
				cmd.Env = append(cmd.Env, variable+"=")
			}
		}
		text, err := cmd.CombinedOutput()
		return string(text), err != nil
	}
	r.t.Fatalf("there is no step %q", name)
	return "", false
}

// archive returns a plug-in, packed as a release has it.
func archive(t *testing.T, script string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: "kubectl-npc", Mode: 0o755, Size: int64(len(script))}); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte(script))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestGet downloads a release's archive, and unpacks nothing that does not have its sum.
func TestGet(t *testing.T) {
	const name = "kubectl-npc_linux_amd64.tar.gz"
	packed := archive(t, "#!/bin/sh\necho it runs\n")
	sum := fmt.Sprintf("%x  %s\n", sha256.Sum256(packed), name)
	other := fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte("x")), name)
	for _, c := range []struct {
		name, sums, version, ref, arch, want string
	}{
		{"by_version", sum, "v1.2.3", "main", "X64", ""},
		{"by_the_tag", "0  other.tar.gz\n" + sum, "", "v1.2.3", "X64", ""},
		{"another_file", other, "v1.2.3", "", "X64", "does not have the sum"},
		{"not_listed", "0  other.tar.gz\n", "v1.2.3", "", "X64", "does not have the sum"},
		{"listed_twice", other + sum, "v1.2.3", "", "X64", "does not have the sum"},
		{"a_branch", sum, "", "main", "X64", `version: "main" is no release`},
		{"no_version", sum, "", "", "X64", `version: "" is no release`},
		{"a_command", sum, "v1.2.3\n::set-env name=A::b", "", "X64", "is no release"},
		{"no_archive", sum, "v1.2.3", "", "ARM64", "404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRunner(t)
			r.write(filepath.Join(r.dir, "release", name), string(packed))
			r.write(filepath.Join(r.dir, "release", "SHA256SUMS"), c.sums)
			r.program("curl", `
while [ $# -gt 1 ]; do [ "$1" != --output ] || out=$2; shift; done
[ "${1%/*}" = https://github.com/o/n/releases/download/v1.2.3 ] || { echo "unknown $1" >&2; exit 22; }
cp "`+r.dir+`/release/${1##*/}" "$out" 2>/dev/null || { echo 404 >&2; exit 22; }`)
			out, failed := r.run("Get weave-npc", "VERSION="+c.version, "ACTION_REF="+c.ref, "REPOSITORY=o/n", "RUNNER_ARCH="+c.arch)
			if c.want != "" {
				if _, err := os.Stat(filepath.Join(r.temp, "weave-npc/kubectl-npc")); !failed || err == nil || !strings.Contains(out, c.want) ||
					strings.Contains(out, "\n::set-env") {
					t.Errorf("failed: %v, the program is there: %v\n%s", failed, err == nil, out)
				}
				return
			}
			program := strings.TrimPrefix(strings.TrimSpace(r.read("output")), "program=")
			said, err := exec.CommandContext(t.Context(), program).CombinedOutput()
			if failed || err != nil || string(said) != "it runs\n" {
				t.Errorf("failed: %v, %v\n%s%s", failed, err, out, said)
			}
		})
	}
}

// TestAsk shows how the program is called, and how its answers are used.
func TestAsk(t *testing.T) {
	const asked = `echo "$*" >>"$RUNNER_TEMP/asked"; echo "answer to $1 as ${@: -1}"
case "$1 $*" in diff*--fail-on*) exit ${FAILS:-0};; diff*) exit ${DIFFERS:-0};; check*) exit ${BROKEN:-0};; esac`
	for _, c := range []struct {
		name, env, asked, output, want string
	}{
		{"nothing_differs", "MANIFESTS=deploy|FAIL_ON=never", "diff git:REV:deploy ./deploy --output markdown\ncheck ./deploy --output markdown\ncheck ./deploy --output sarif",
			"different=false failed=0", ""},
		{"something_differs", "MANIFESTS=deploy|FAIL_ON=never|DIFFERS=1", "", "different=true failed=0", ""},
		{"it_opens", "MANIFESTS=.|FAIL_ON=opens|DIFFERS=1|FAILS=1", "diff git:REV:. ./. --output markdown\ndiff git:REV:. ./. --fail-on opens\ncheck ./. --output markdown\n" +
			"check ./. --output sarif", "different=true failed=1", ""},
		{"it_only_closes", "MANIFESTS=.|FAIL_ON=opens|DIFFERS=1", "", "different=true failed=0", ""},
		{"an_expectation_is_broken", "MANIFESTS=.|FAIL_ON=never|BROKEN=1|EXPECTATIONS=a b.yaml\n\n$(id).yaml",
			"diff git:REV:. ./. --output markdown\ncheck ./. a b.yaml $(id).yaml --output markdown\ncheck ./. a b.yaml $(id).yaml --output sarif",
			"different=false failed=1", ""},
		{"a_base", "MANIFESTS=.|FAIL_ON=never|BASE=v1", "diff git:v1:. ./. --output markdown\ncheck ./. --output markdown\ncheck ./. --output sarif",
			"different=false failed=0", ""},
		{"a_directory_called_cluster", "MANIFESTS=cluster|FAIL_ON=never",
			"diff git:REV:cluster ./cluster --output markdown\ncheck ./cluster --output markdown\ncheck ./cluster --output sarif", "different=false failed=0", ""},
		{"it_fails", "MANIFESTS=.|FAIL_ON=never|DIFFERS=2", "diff git:REV:. ./. --output markdown", "", "::error::weave-npc diff failed with status 2"},
		{"the_check_fails", "MANIFESTS=.|FAIL_ON=never|BROKEN=2", "", "", "::error::weave-npc check failed with status 2"},
		{"a_directory_called_like_the_base", "MANIFESTS=v1:deploy|FAIL_ON=never|BASE=v1", "diff git:v1:v1:deploy ./v1:deploy --output markdown\n" +
			"check ./v1:deploy --output markdown\ncheck ./v1:deploy --output sarif", "different=false failed=0", ""},
		{"a_link_out_of_the_repository", "MANIFESTS=out|FAIL_ON=never", "-", "", "::error::path is missing, or a link in it leads out"},
		{"through_a_link", "MANIFESTS=out/passwd|FAIL_ON=never", "-", "", "::error::path is missing, or a link in it leads out"},
		{"a_path_above", "MANIFESTS=..|FAIL_ON=never", "-", "", "::error::path is missing, or a link in it leads out"},
		{"expectations_outside", "MANIFESTS=.|FAIL_ON=never|EXPECTATIONS=out/passwd", "", "", "::error::expectations: a file is missing, or a link"},
		{"an_option_as_path", "MANIFESTS=--help|FAIL_ON=never", "-", "", "::error::path has to be one from the top"},
		{"an_option_as_file", "MANIFESTS=.|FAIL_ON=never|EXPECTATIONS=-o", "", "", "no name of a file begins with a dash"},
		{"no_such_fail_on", "MANIFESTS=.|FAIL_ON=sometimes", "-", "", "::error::fail-on is none of"},
		{"no_pull_request", "MANIFESTS=.|FAIL_ON=never|TARGET=", "-", "", "::error::this is no pull request"},
		{"no_history", "MANIFESTS=.|FAIL_ON=never|TARGET=elsewhere", "-", "", "::error::the merge base is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRunner(t)
			r.program("npc", asked)
			rev := r.repository()
			env := []string{"PROGRAM=" + r.bin + "/npc", "TARGET=main"}
			out, failed := r.run("Compare and check", append(env, strings.Split(c.env, "|")...)...)
			want := strings.ReplaceAll(c.asked, "REV", rev)
			if got := strings.TrimSpace(r.read("asked")); want != "" && want != "-" && got != want || want == "-" && got != "" {
				t.Errorf("asked is\n%s\nnot\n%s", got, want)
			}
			if c.want != "" {
				if !failed || !strings.Contains(out, c.want) || r.read("output") != "" {
					t.Errorf("failed: %v, output %q\n%s", failed, r.read("output"), out)
				}
				return
			}
			if failed || !strings.HasPrefix(strings.ReplaceAll(r.read("output"), "\n", " "), c.output) {
				t.Errorf("failed: %v, output %q\n%s", failed, r.read("output"), out)
			}
			const report = "answer to diff as markdown\n\nanswer to check as markdown\n"
			if r.read("summary") != report || r.read("weave-npc/report.md") != report || r.read("weave-npc/findings.sarif") != "answer to check as sarif\n" {
				t.Errorf("the summary is %q", r.read("summary"))
			}
		})
	}
}

// repository makes a pull request's merge, and returns the revision of what it is merged into.
func (r *runner) repository() string {
	r.t.Helper()
	script := `set -e
git init -q -b main . && git config user.name a && git config user.email a@example.com
mkdir deploy cluster v1:deploy && ln -s /etc out && touch 'a b.yaml' '$(id).yaml'
echo 1 >a && git add a && git commit -q -m 1
git update-ref refs/remotes/origin/main HEAD
git checkout -q -b change && echo 2 >a && git commit -q -a -m 2
git rev-parse origin/main`
	cmd := exec.CommandContext(r.t.Context(), "bash", "-c", script)
	cmd.Dir = r.dir
	cmd.Env = r.env
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(filepath.Join(r.temp, "weave-npc", "empty"), "")
	return strings.TrimSpace(string(out))
}

// TestComment brings its own comment up to date, or writes the first one, and never more than a comment may have.
func TestComment(t *testing.T) {
	for _, c := range []struct{ name, id, report, diff, want, body string }{
		{"first", "", "report\n", "", "POST repos/o/n/issues/7/comments", "<!-- weave-npc -->\nreport\n"},
		{"later", "42", "report\n", "", "PATCH repos/o/n/issues/comments/42", "<!-- weave-npc -->\nreport\n"},
		{"too_long", "", strings.Repeat("x", 70000), "short", "POST repos/o/n/issues/7/comments", "<!-- weave-npc -->\nshort"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRunner(t)
			r.program("gh", `case $* in *--paginate*) echo `+c.id+`;; *) echo "$4 $5" >"$RUNNER_TEMP/called"; cp "${7#body=@}" "$RUNNER_TEMP/body";; esac`)
			r.write(filepath.Join(r.temp, "report.md"), c.report)
			r.write(filepath.Join(r.temp, "report.md.diff"), c.diff)
			out, failed := r.run("Comment on the pull request", "REPOSITORY=o/n", "NUMBER=7", "REPORT="+r.temp+"/report.md")
			if failed || strings.TrimSpace(r.read("called")) != c.want || r.read("body") != c.body {
				t.Errorf("failed: %v, %q %q\n%s", failed, r.read("called"), r.read("body"), out)
			}
		})
	}
}

// TestTheJobEndsByTheAnswer fails where something that was asked for failed.
func TestTheJobEndsByTheAnswer(t *testing.T) {
	for status, want := range map[string]bool{"0": false, "1": true} {
		if _, failed := newRunner(t).run("Fail on findings", "FAILED="+status); failed != want {
			t.Errorf("with %s, failed is %v", status, failed)
		}
	}
}
