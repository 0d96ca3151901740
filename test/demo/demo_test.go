package main

import (
	"bytes"
	"io"
	"net/netip"
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

func TestLineOfAConnection(t *testing.T) {
	t.Parallel()
	p := pair{"shop/web", target{"shop/db", 5432}}
	from, to := netip.MustParseAddr("10.32.1.2"), netip.MustParseAddr("10.32.1.3")
	for line, want := range map[string]bool{
		`msg=blocked from="shop/web (10.32.1.2:48390)" to="shop/db (10.32.1.3:5432)" repeats=2`: true,
		`msg=blocked from="shop/web (10.32.1.2:48390)" to="shop/db (10.32.1.3:9187)" repeats=2`: false,
		`msg=blocked from="shop/api (10.32.2.2:48390)" to="shop/db (10.32.1.3:5432)"`:           false,
		`msg=blocked from="shop/web (fd10::2:48390)" to="shop/db (fd10::3:5432)"`:               false,
		`msg=other from="shop/web (10.32.1.2:48390)" to="shop/db (10.32.1.3:5432)"`:             false,
	} {
		if got := p.isIn(line, from, to); got != want {
			t.Errorf("%v for %s", got, line)
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
	signal := func(s unix.Signal, at string) []reaction { return []reaction{{at, func(d *running) { d.signal(s) }}} }
	killed := []reaction{
		{"kill -9 ", (*running).kill},
		{"starts again when you press Enter", func(*running) {}},
		{"runs again", func(*running) {}},
		{"The matrix is as it was.", func(d *running) { d.signal(unix.SIGINT) }},
	}
	for name, c := range map[string]struct {
		npc    string
		flags  string
		reacts []reaction
		status int
		says   string
	}{
		"to the end":               {weaveNPC, "", nil, 0, "all of it was checked"},
		"interrupted at once":      {weaveNPC, "", signal(unix.SIGINT, "weave-npc: reachability"), 130, "SIGINT"},
		"interrupted at the start": {weaveNPC, "", signal(unix.SIGHUP, "node2# weave-npc"), 129, "SIGHUP"},
		"interrupted later":        {weaveNPC, "", signal(unix.SIGTERM, "5. Blocked"), 143, "SIGTERM"},
		"interrupted in a pause":   {weaveNPC, "-pause", signal(unix.SIGINT, prompt), 130, "SIGINT"},
		"kept, weave-npc killed":   {weaveNPC, "-keep -pause", killed, 0, "The cluster is removed."},
		"weave-npc dies":           {dying, "", nil, 1, "I am dying"},
		"no weave-npc":             {dir + "/none", "", nil, 1, "make build"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t, filepath.Join(dir, "demo"), c.reacts, append(strings.Fields(c.flags), "-weave-npc", c.npc)...)
			guard := time.AfterFunc(await.Scaled(10*time.Minute), func() { _ = d.Process.Kill() })
			defer guard.Stop()
			_ = d.Wait() // the status is checked below
			said := d.text.String()
			if status := d.ProcessState.ExitCode(); status != c.status || !strings.Contains(said, c.says) || len(d.reacts) > 0 {
				t.Errorf("exit status %d, want %d, with %q and %v in what it says:\n%s", status, c.status, c.says, d.reacts, said)
			}
			checkScreens(t, c.flags, said)
			if left := leftBehind(t, d.Process.Pid, said); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// checkScreens checks that each screen is one, if the demo pauses, and that there is no pause else.
func checkScreens(t *testing.T, flags, said string) {
	t.Helper()
	const most = 50
	screens := strings.Split(said, prompt)
	if !strings.Contains(flags, "-pause") {
		if len(screens) > 1 {
			t.Errorf("it pauses:\n%s", said)
		}
		return
	}
	for i, screen := range screens {
		if n := strings.Count(screen, "\n"); n > most {
			t.Errorf("screen %d has %d lines, more than %d:\n%s", i+1, n, most, screen)
		}
	}
}

// reaction is what a user does when a text has been printed, after what was done before.
type reaction struct {
	at string
	do func(*running)
}

// running is a demo that runs. It keeps what the demo prints, reacts to it, and presses Enter at each prompt.
type running struct {
	*exec.Cmd
	stdin  io.Writer
	text   strings.Builder
	unread string // since the last reaction
	reacts []reaction
}

func start(t *testing.T, demo string, reacts []reaction, flags ...string) *running {
	t.Helper()
	d := &running{Cmd: exec.Command(demo, flags...), reacts: reacts}
	stdin, err := d.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.stdin, d.Stdout, d.Stderr = stdin, d, d
	d.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *running) signal(s unix.Signal) { _ = d.Process.Signal(s) }

// kill kills the weave-npc that the demo names first.
func (d *running) kill() {
	if pid := regexp.MustCompile(`kill -9 (\d+)`).FindStringSubmatch(d.text.String()); pid != nil {
		n, _ := strconv.Atoi(pid[1]) // digits
		_ = unix.Kill(n, unix.SIGKILL)
	}
}

func (d *running) Write(b []byte) (int, error) {
	n, err := d.text.Write(b)
	d.unread += string(b)
	for len(d.reacts) > 0 {
		_, rest, found := strings.Cut(d.unread, d.reacts[0].at)
		if !found {
			break
		}
		do := d.reacts[0].do
		d.unread, d.reacts = rest, d.reacts[1:]
		do(d)
	}
	if bytes.Contains(b, []byte(prompt)) {
		_, _ = io.WriteString(d.stdin, "\n") // a demo that has ended reads nothing
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
