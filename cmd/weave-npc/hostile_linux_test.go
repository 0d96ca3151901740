package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hostileTree returns the manifests of a pull request whose author wants what runs on them to wait, or to print commands.
func hostileTree(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tree")
	const owner = `ownerReferences: [{apiVersion: v1, controller: true, uid: a, kind: "A\n::error::a", name: "\e[2J##[group]b\n::add-mask::c"}]`
	const objects = "{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, " + owner + "}, status: {podIP: 10.0.0.1}}\n---\n" +
		`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: shop, name: p, annotations: {weave-npc/staged: "a\n::add-mask::b\e[2J##[c]"}},` +
		" spec: {podSelector: {}}}\n"
	const expectations = "apiVersion: weave-npc/v1alpha1\nkind: Expectations\nexpectations:\n- {name: \"::add-mask::\\e[2J##[a]\\n::error::b\", from: \"*/*\", reaches: shop/web, on: [tcp/1]}\n" +
		"- shop/* never reaches shop/* on tcp/1\n"
	for name, text := range map[string]string{"a\n::stop-commands::x.yaml": objects, "\x1b]0;x\a##[group]y.yaml": strings.ReplaceAll(objects, "shop, name: ", "shop, name: b"),
		".x/expectations.yaml": "apiVersion: weave-npc/v1\nkind: Expectations\n", ".x/bad.yaml": "x: y", "b\n::add-mask::z.yaml": expectations, "::add-mask::z.yaml": expectations} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/dev/zero", filepath.Join(dir, ".x/l.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, ".x/fifo.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// commandsIn matches what a terminal or continuous integration takes for a command.
func commandsIn() *regexp.Regexp {
	return regexp.MustCompile(`(?m)[\x00-\x08\x0b-\x1f\x7f\x{80}-\x{9f}\x{202a}-\x{202e}]|^\s*::[a-z]|##[A-Za-z.]*\[`)
}

// TestHostileTreesPrintNoCommands shows that no name or value is printed as a command, in any format, of objects that are
// used and of such that are refused, and that hidden names are left out, and named.
func TestHostileTreesPrintNoCommands(t *testing.T) {
	dir := hostileTree(t)
	broken := hostileTree(t)
	for _, name := range []string{"a\n::error::w.yaml", "::add-mask::\x1b[31m.yaml"} {
		if err := os.WriteFile(filepath.Join(broken, name), []byte("apiVersion: v1\nkind: \"Pod\"\nmetadata: {name: \"a\\n::add-mask::\\e[2J\"}\n\"\\n::x::\": 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	odd := filepath.Join(dir, "none\n::error::x")
	for _, args := range [][]string{
		{"check", dir}, {"check", dir, "-o", "json"}, {"check", dir, "-o", "markdown"}, {"check", dir, "-o", "junit"}, {"check", dir, "-o", "sarif"},
		{"check", dir, dir}, {"check", "--only", "lint", dir}, {"check", dir, odd}, {"check", odd}, {"diff", dir, "testdata/shop"}, {"diff", odd, dir}, {"diff", "git:" + odd, dir},
		{"diff", "testdata/shop", dir, "-o", "json"}, {"diff", dir, "testdata/shop", "-o", "markdown"}, {"show", "pods", "-f", dir}, {"show", "policies", "-f", dir},
		{"show", "policies", "-o", "json", "-f", dir}, {"show", "matrix", "--port", "tcp/80", "-f", dir}, {"explain", "--from", "shop/web", "--to", "shop/bweb", "--port", "tcp/80", "-f", dir},
		{"who-can-reach", "shop/web", "-f", dir}, {"replay", "--flows", "testdata/recording/flows.jsonl", "-f", dir},
		{"check", broken}, {"diff", dir, broken}, {"show", "pods", "-f", broken}, {"check", dir, broken},
	} {
		out, _ := execute(t, args...)
		if found := commandsIn().FindString(out); found != "" {
			t.Errorf("%q prints the command %q:\n%s", args, found, out)
		}
	}
	out, status := execute(t, "check", dir)
	if status == 2 || !strings.Contains(out, "hidden names below "+dir+" are not read: .x\n") {
		t.Errorf("status %d\n%s", status, out)
	}
}

// TestErrorsPrintNoCommands does as main does.
func TestErrorsPrintNoCommands(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestMainOfThis$")
	cmd.Env = append(os.Environ(), "WEAVE_NPC_TEST_MAIN=check\x01./x\r\x1b[2J\n::add-mask::y")
	out, err := cmd.CombinedOutput()
	if err == nil || commandsIn().Match(out) || !bytes.Contains(out, []byte("weave-npc: ")) {
		t.Errorf("%v, %q", err, out)
	}
}

// TestMainOfThis is main with other arguments, in a process of its own.
func TestMainOfThis(*testing.T) {
	if args := os.Getenv("WEAVE_NPC_TEST_MAIN"); args != "" {
		os.Args = append([]string{"weave-npc"}, strings.Split(args, "\x01")...)
		main()
		os.Exit(0)
	}
}

// TestSignalsEndCommandsThatRead what has no end.
func TestSignalsEndCommandsThatRead(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMainOfThis$")
		cmd.Env = append(os.Environ(), "WEAVE_NPC_TEST_MAIN=check\x01-")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(in, strings.Repeat("#\n", 1<<20)); err != nil { // more than a pipe holds: it reads
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%v: it ends as if it had read all", signal)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%v: it reads on", signal)
			_ = cmd.Process.Kill()
			<-ended
		}
		_ = in.Close()
	}
}
