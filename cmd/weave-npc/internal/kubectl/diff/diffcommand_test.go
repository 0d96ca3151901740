package diff

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/cli"
	"github.com/weave-npc/weave-npc/cmd/weave-npc/internal/kubectl/output"
	"github.com/weave-npc/weave-npc/test/golden"
)

const (
	before = "testdata/before.yaml"
	after  = "testdata/after.yaml"
)

// run runs the command and returns what it prints, and its exit status.
func run(t *testing.T, stdin string, args ...string) (out, stderr string, status int) {
	t.Helper()
	cmd := New()
	var stdout, notes bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&stdout)
	cmd.SetErr(&notes)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	if err == nil {
		return stdout.String(), notes.String(), 0
	}
	if !errors.Is(err, cli.ErrNo) {
		notes.WriteString(err.Error())
	}
	return stdout.String(), notes.String(), cli.Status(cmd, err)
}

// TestFormats shows what an operator reads in each format.
func TestFormats(t *testing.T) {
	for format, file := range map[string]string{outputText: "diff.txt", outputMarkdown: "diff.md", outputJSON: "diff.json", outputJUnit: "diff.xml",
		outputHTML: "diff.html"} {
		t.Run(format, func(t *testing.T) {
			out, _, status := run(t, "", before, after, "-o", format)
			if status != 1 {
				t.Errorf("exit status %d", status)
			}
			golden.Compare(t, filepath.Join("testdata", file), out)
			if format == outputJSON && !json.Valid([]byte(out)) {
				t.Error("that is no JSON")
			}
		})
	}
	out, _, _ := run(t, "", before, after, "-o", outputSARIF)
	if !json.Valid([]byte(out)) || strings.Count(out, `"ruleId": "closes"`) != 3 {
		t.Error(out)
	}
}

// TestDocs shows that docs/diff.md has what the command prints.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../../../../docs/diff.md")
	if err != nil {
		t.Fatal(err)
	}
	out, _, _ := run(t, "", before, after, "-n", "ops")
	for line := range strings.Lines(out) {
		if !strings.Contains(string(page), "    "+line) {
			t.Errorf("docs/diff.md does not have %s", line)
		}
	}
}

func TestExitStatus(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		status int
		want   string // in what is printed
	}{
		{"different", []string{before, after}, 1, "opens 1 pair of pods in 1 group"},
		{"the_same", []string{before, before}, 0, "no difference between 3 pods"},
		{"nothing_opens", []string{after, before, "--fail-on", "opens", "--from-namespace", "ops", "--to-namespace", "shop", "-o", "json"}, 1, `"same":false`},
		{"nothing_closes", []string{before, after, "--fail-on", "closes", "--from-namespace", "ops", "--to-namespace", "ops"}, 0, "no difference"},
		{"what_closes_fails", []string{before, after, "--fail-on", "closes", "--to-namespace", "shop", "--from-namespace", "shop"}, 1, "opens nothing"},
		{"no_source", []string{before, "nosuch"}, 2, `"nosuch" is no file or directory, no git:REVISION:PATH, and not cluster`},
		{"no_format", []string{before, after, "-o", "yaml"}, 2, `--output: "yaml" is none of`},
		{"no_side", []string{before, after, "--fail-on", "both"}, 2, `--fail-on: "both" is none of opens, closes and any`},
		{"no_limit", []string{before, after, "--limit", "-1"}, 2, "--limit: it must not be negative"},
		{"no_namespace", []string{before, after, "-n", "shpo"}, 2, "there is no namespace shpo; did you mean shop?"},
		{"an_option_for_a_revision", []string{before, "--output=x:y"}, 2, "AFTER is missing: give two states"},
		{"a_limit", []string{before, after, "--limit", "1"}, 1, "- ... and 2 groups more; --limit 0 lists all"},
		{"twice_standard_input", []string{"-", "-"}, 2, "standard input is read for another flag already"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, stderr, status := run(t, "{apiVersion: v1, kind: Namespace, metadata: {name: a}}", c.args...)
			if status != c.status || !strings.Contains(out+stderr, c.want) {
				t.Errorf("status %d\n%s\n%s", status, out, stderr)
			}
		})
	}
}

// TestSources shows where the objects of both states come from.
func TestSources(t *testing.T) {
	manifest, err := os.ReadFile(after)
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := run(t, "", before, after)
	if got, _, status := run(t, string(manifest), before, "-"); got != want || status != 1 {
		t.Errorf("standard input: %s", got)
	}
	dir := t.TempDir()
	if _, stderr, status := run(t, "", before, dir); status != 2 || !strings.Contains(stderr, "--allow-empty takes it for an empty cluster") {
		t.Errorf("an empty directory: %d, %s", status, stderr)
	}
	if out, _, status := run(t, "", before, dir, "--allow-empty"); status != 1 || !strings.Contains(out, "(gone)") {
		t.Errorf("an empty directory: %d, %s", status, out)
	}
	policies, workloads := filepath.Join(dir, "policies.yaml"), filepath.Join(dir, "workloads.yaml")
	parts := strings.SplitAfterN(string(manifest), "---\napiVersion: networking", 2)
	write(t, workloads, strings.TrimSuffix(parts[0], "---\napiVersion: networking"))
	write(t, policies, "apiVersion: networking"+parts[1])
	with, _, _ := run(t, "", workloads, policies, "--base", workloads)
	whole, _, _ := run(t, "", workloads, after)
	if with != whole {
		t.Errorf("policies with workloads beneath:\n%s\nboth together:\n%s", with, whole)
	}
	none := filepath.Join(dir, "none.yaml")
	write(t, none, "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: shop}}}")
	if out, _, status := run(t, "", policies, none, "--base", after); status != 0 {
		t.Errorf("what is beneath stays: %s", out)
	}
	if out, _, status := run(t, "", policies, none, "--base", after, "--prune"); status != 1 || !strings.Contains(out, "opens") {
		t.Errorf("--prune: %s", out)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRevisions shows that revisions of git are read, and nothing is checked out.
func TestRevisions(t *testing.T) {
	first, second := read(t, before), read(t, after)
	want, _, _ := run(t, "", before, after)
	t.Chdir(t.TempDir())
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	git("init", "-q")
	write(t, "README", "nothing\n")
	git("add", ".")
	git("commit", "-q", "-m", "start")
	git("tag", "empty")
	if err := os.MkdirAll("prod/more", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, "prod/more/app.yaml", first)
	write(t, "prod/.hidden.yaml", "no: manifest")
	if err := os.MkdirAll("prod/more/.x\n::error::y/z", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.yaml", "z/b.yaml"} {
		write(t, "prod/more/.x\n::error::y/"+name, "no: manifest")
	}
	write(t, "prod/notes.txt", "nor this")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	git("tag", "v1")
	write(t, "prod/more/app.yaml", second)
	git("commit", "-q", "-a", "-m", "second")
	write(t, "prod/more/app.yaml", "kind: [") // what is on disk does not matter
	for _, args := range [][]string{{"v1:prod", "HEAD:prod"}, {"v1:prod/", "HEAD:prod/more/app.yaml"}, {"v1:", "main:"}, {"git:v1:prod", "git:HEAD:prod"}} {
		if got, stderr, status := run(t, "", args...); got != want || status != 1 {
			t.Errorf("%v: %d, %s%s", args, status, got, stderr)
		}
	}
	if _, stderr, _ := run(t, "", "v1:", "HEAD:prod/more/app.yaml"); !strings.HasPrefix(stderr, "weave-npc: hidden names of v1 are not read: prod/.hidden.yaml and prod/more/.x\\n::error::y\n") {
		t.Errorf("%s", stderr)
	}
	if out, stderr, status := run(t, "", "empty:prod", "v1:prod"); status != 1 || !strings.Contains(stderr, "there is no prod in empty: that state is empty") ||
		!strings.Contains(out, "(new)") && !strings.Contains(out, "new)") {
		t.Errorf("%d, %s%s", status, out, stderr)
	}
	for revision, want := range map[string]string{"v2:prod": `git has no revision "v2"`, "-h:prod": "is no file", "v1 -h:prod": "is no file",
		"v1:../x": "that state is empty"} {
		if _, stderr, _ := run(t, "", "--", revision, "v1:prod"); !strings.Contains(stderr, want) {
			t.Errorf("%s: %s", revision, stderr)
		}
	}
	// What a pull request has by the name of a revision is not compared instead of it.
	if err := os.MkdirAll("v1:prod", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, "v1:prod/app.yaml", second)
	write(t, "after.yaml", second)
	if got, stderr, status := run(t, "", "git:v1:prod", "./after.yaml"); status != 1 || !strings.Contains(got, "+ ops/agent -> shop/db") {
		t.Errorf("%d, %s%s", status, got, stderr)
	}
	if got, stderr, status := run(t, "", "./v1:prod", "git:HEAD:prod"); status != 0 {
		t.Errorf("%d, %s%s", status, got, stderr)
	}
	for name, want := range map[string]string{"v1:prod": "give ./v1:prod for the former, or git:v1:prod for the latter",
		"git:v1": `"git:v1" is not git:REVISION:PATH; a file or directory of this name is ./git:v1`} {
		if got, stderr, status := run(t, "", name, "after.yaml"); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%d, %s%s", status, got, stderr)
		}
	}
	git("commit", "-q", "-a", "-m", "third")
	if _, stderr, status := run(t, "", "git:v1:prod", "HEAD:prod"); status != 2 || !strings.Contains(stderr, "HEAD:prod/more/app.yaml:1: ") {
		t.Errorf("%d, %s", status, stderr)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEscapes shows that text of objects has no meaning in markdown.
func TestEscapes(t *testing.T) {
	const odd = "a|b `c` <script> @d \x1b[1m\n"
	if got := output.Code(odd); strings.ContainsAny(strings.TrimSuffix(strings.TrimPrefix(got, "<code>"), "</code>"), "|`<>@\x1b\n") {
		t.Error(got)
	}
}

// TestMarkdownIsBounded shows that a comment is no longer than hosts of pull requests take, and says so.
func TestMarkdownIsBounded(t *testing.T) {
	var b strings.Builder
	for i := range 400 {
		name := "w" + strings.Repeat("x", 40) + strings.Repeat("y", i%7) + string(rune('a'+i%26)) + string(rune('a'+i/26%26))
		b.WriteString("---\n{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: " + name + ", labels: {app: " + name + "}}, spec: {containers: [{name: a, image: a, ports: " +
			"[{containerPort: 80}]}]}}\n---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: shop, name: " + name +
			"}, spec: {podSelector: {matchLabels: {app: " + name + "}}, ingress: [{ports: [{port: " + string(rune('1'+i%9)) + "0" + string(rune('0'+i/9%10)) + string(rune('0'+i/90)) + "}]}]}}\n")
	}
	dir := t.TempDir()
	path, open := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	write(t, path, b.String())
	var without strings.Builder
	for document := range strings.SplitSeq(b.String(), "---\n") {
		if strings.Contains(document, "kind: Pod,") {
			without.WriteString("---\n" + document)
		}
	}
	write(t, open, without.String())
	out, stderr, status := run(t, "", open, path, "-o", "markdown", "--limit", "0")
	if status != 1 || len([]rune(out)) > maxMarkdown || !strings.Contains(out, "not shown here") {
		t.Errorf("%d, %d characters, %s", status, len([]rune(out)), stderr)
	}
}

// TestFlows shows that recorded connections are listed whose verdict differs between both states.
func TestFlows(t *testing.T) {
	record := `{"from":{"namespace":"ops","pod":"agent","workload":"DaemonSet/agent","labels":{"app":"agent"},"address":"10.0.0.1"},` +
		`"to":{"namespace":"shop","pod":"db-0","workload":"StatefulSet/db","labels":{"app":"db"},"address":"10.0.0.2"},"port":"tcp/9187","verdict":"denied",` +
		`"node":"node1","count":3,"first":"2026-11-02T00:00:00Z","last":"2026-11-03T00:00:00Z"}` + "\n"
	out, stderr, status := run(t, record, before, after, "--flows", "-")
	if status != 1 || !strings.Contains(out, "ops/DaemonSet/agent -> shop/StatefulSet/db, tcp/9187: denied, would be allowed") {
		t.Errorf("%d, %s%s", status, out, stderr)
	}
	if out, _, status := run(t, record, before, after, "--flows", "-", "--fail-on", "closes"); status != 0 {
		t.Errorf("%d, %s", status, out)
	}
}
