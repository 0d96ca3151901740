package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

func TestMatrixIsReadAsItIsDrawn(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]matrix{"without policies": everybody(), "with policies": isolated(), "with tiers": tiered(isolated())} {
		drawn := m.draw(nil, plain{})
		_, rows, _ := strings.Cut(drawn, ":443\n")
		if diff := cmp.Diff(m, read(rows)); diff != "" {
			t.Errorf("%s: drawn as\n%s, read otherwise:\n%s", name, drawn, diff)
		}
	}
}

func TestDifferencesAreMarked(t *testing.T) {
	t.Parallel()
	before := everybody().but("shop/web", "shop/api", 8080, blocked)
	after := everybody().but("dev/shell", "shop/web", 80, blocked)
	want := []pair{{"shop/web", target{"shop/api", 8080}}, {"dev/shell", target{"shop/web", 80}}}
	if diff := cmp.Diff(want, before.differences(after), cmp.AllowUnexported(pair{}, target{})); diff != "" {
		t.Error(diff)
	}
	drawn := after.draw(before, plain{})
	for row, marks := range map[string]string{
		"shop/web ": ". . +ok ok", "dev/shell ": "-x ok ok ok", "outside ": "ok ok ok ok",
	} {
		_, rest, _ := strings.Cut(drawn, "\n  "+row)
		if got := strings.Join(strings.Fields(rest)[:4], " "); got != marks {
			t.Errorf("row %sbegins with %q, not %q, in\n%s", row, got, marks, drawn)
		}
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line   string
		before []string
		want   string
	}{
		"empty":          {"", []string{" "}, ""},
		"short":          {"aaa bbb", []string{" "}, "aaa bbb"},
		"exact":          {"aaaa bbbbb", []string{" "}, "aaaa bbbbb"},
		"between words":  {"aaa bbb ccc ddd eee", []string{" "}, "aaa bbb\n  ccc ddd\n  eee"},
		"long word":      {"aaaaaaaaaaaaaaa bbb", []string{" "}, "aaaaaaaaaaaaaaa\n  bbb"},
		"no place":       {"aaaaaaaaaaaaaaa", []string{" "}, "aaaaaaaaaaaaaaa"},
		"before options": {"-A B -m c d e -g f", []string{" -m ", " -g "}, "-A B\n  -m c d e\n  -g f"},
	} {
		if got := wrap(c.line, 10, "  ", c.before...); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestSetOfPolicy(t *testing.T) {
	t.Parallel()
	const rules kernelRules = `-N WEAVE-NPC-I-abc
-A WEAVE-NPC-I-abc -p tcp -m set --match-set weave-one dst,dst -m comment --comment "aaaa shop/web rule 1" -j ACCEPT
-A WEAVE-NPC-I-abc -m set --match-set weave-two dst -m set --match-set weave-three src -m comment --comment "bbbb ` +
		`shop/db rule 1 / shop/other rule 2" -j ACCEPT`
	for _, c := range []struct{ policy, direction, want string }{
		{"shop/web", "dst,dst", "weave-one"},
		{"shop/web", "src", ""},
		{"shop/none", "src", ""},
	} {
		got, err := rules.set(c.policy, c.direction)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("set of %s, %s: %q, %v; want %q", c.policy, c.direction, got, err, c.want)
		}
	}
}

// TestDemo runs the demo as `make demo` does, several at once.
func TestDemo(t *testing.T) {
	dir := t.TempDir()
	build := exec.Command("go", "build", "-race", "-o", dir, "github.com/weave-npc/weave-npc/cmd/weave-npc", ".")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, output)
	}
	dying := filepath.Join(dir, "dying")
	if err := os.WriteFile(dying, []byte("#!/bin/sh\necho I am dying\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	weaveNPC := filepath.Join(dir, "weave-npc")
	for name, c := range map[string]struct {
		npc    string
		keep   bool
		signal unix.Signal
		at     string // what is printed when the signal is sent
		status int
		says   string
	}{
		"to the end":               {weaveNPC, false, 0, "", 0, "all of it was checked"},
		"interrupted at once":      {weaveNPC, false, unix.SIGINT, "weave-npc: reachability", 130, "SIGINT"},
		"interrupted at the start": {weaveNPC, false, unix.SIGHUP, "node2# weave-npc", 129, "SIGHUP"},
		"interrupted later":        {weaveNPC, false, unix.SIGTERM, "5. Blocked", 143, "SIGTERM"},
		"kept, then interrupted":   {weaveNPC, true, unix.SIGINT, "tail -f", 0, "The cluster is removed."},
		"weave-npc dies":           {dying, false, 0, "", 1, "I am dying"},
		"no weave-npc":             {dir + "/none", false, 0, "", 1, "make build"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := exec.Command(filepath.Join(dir, "demo"), "-weave-npc", c.npc, "-keep="+strconv.FormatBool(c.keep))
			out := &watched{at: c.at, reached: func() { _ = d.Process.Signal(c.signal) }}
			d.Stdout, d.Stderr = out, out
			d.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
			if err := d.Start(); err != nil {
				t.Fatal(err)
			}
			guard := time.AfterFunc(await.Scaled(10*time.Minute), func() { _ = d.Process.Kill() })
			defer guard.Stop()
			_ = d.Wait() // the status is checked below
			if status := d.ProcessState.ExitCode(); status != c.status || !strings.Contains(out.text.String(), c.says) {
				t.Errorf("exit status %d, want %d, with %q in what it says:\n%s", status, c.status, c.says, out.text.String())
			}
			if left := leftBehind(t, d.Process.Pid, out.text.String()); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// watched keeps what is written to it, and calls reached once when a text has been written.
type watched struct {
	text    strings.Builder
	at      string
	reached func()
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.text.Write(b)
	if w.at != "" && strings.Contains(w.text.String(), w.at) {
		w.at = ""
		w.reached()
	}
	return n, err
}

// leftBehind names what is still there of a demo that has ended.
func leftBehind(t *testing.T, pid int, said string) string {
	t.Helper()
	var left []string
	if found := regexp.MustCompile(`/run/weave-npc-lab/([0-9a-f]{8})/`).FindStringSubmatch(said); found != nil {
		for _, pattern := range []string{"/run/weave-npc-lab/" + found[1] + "*", "/run/netns/wnpc-" + found[1] + "-*"} {
			files, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, files...)
		}
	}
	locks, err := filepath.Glob("/run/weave-npc-lab/*.lock")
	if err != nil {
		t.Fatal(err)
	}
	for _, lock := range locks {
		if owner, err := os.ReadFile(lock); err == nil && strings.TrimSpace(string(owner)) == strconv.Itoa(pid) {
			left = append(left, lock)
		}
	}
	return strings.Join(left, " ")
}
