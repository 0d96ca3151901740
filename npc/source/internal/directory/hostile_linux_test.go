package directory

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/weave-npc/weave-npc/npc/source/manifest"
	sourcetest "github.com/weave-npc/weave-npc/test/source"
)

// TestATreeOfAnotherUser has devices, FIFOs, and links to what is outside of it. Reading it once reads regular files
// within it, ends, and says what is left out.
func TestATreeOfAnotherUser(t *testing.T) {
	outside := sourcetest.WriteFiles(t, map[string]string{"secret.yaml": sourcetest.Pod("secret", ""), "more/a.yaml": sourcetest.Pod("more", "")})
	dir := sourcetest.WriteFiles(t, map[string]string{"a.yaml": sourcetest.Pod("a", ""), "real/b.yml": sourcetest.Pod("b", ""), "c.txt": sourcetest.Pod("c", ""),
		".hidden.yaml": sourcetest.Pod("hidden", ""), ".x/d.yaml": sourcetest.Pod("hidden", ""), ".git/e.yaml": "", ".editorconfig": ""})
	for link, target := range map[string]string{"zero.yaml": "/dev/zero", "secret.yaml": filepath.Join(outside, "secret.yaml"), "up.yaml": "../../etc/passwd",
		"c.yaml": "c.txt", "linked": "real", "away": outside, "real/up": "../..", "real/within.json": "../c.txt", "loop.yaml": "loop.yaml", ".x/l.yaml": "/dev/zero",
		"mem.yaml": "/proc/self/mem", "stdin.yaml": "/dev/stdin", "\x1b[2J": outside} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, fifo := range []string{"fifo.yaml", "real/fifo.json", ".x/fifo.yaml"} {
		if err := syscall.Mkfifo(filepath.Join(dir, fifo), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mknod(filepath.Join(dir, "device.yaml"), syscall.S_IFCHR|0o644, 1<<8|5); err != nil {
		t.Log("no device is made:", err) // a container may not
	}
	d, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r := readOnce(t, d)
	var read, wrong []string
	for _, f := range r.Files {
		read = append(read, strings.TrimPrefix(f.Path, dir+"/"))
	}
	for _, p := range r.Problems {
		if is := strings.TrimPrefix(p.Path, dir+"/"); is != "device.yaml" {
			wrong = append(wrong, is)
		}
	}
	if want := []string{"a.yaml", "c.yaml", "linked/b.yml", "linked/within.json"}; !slices.Equal(read, want) {
		t.Errorf("read are %v", read)
	}
	want := []string{"fifo.yaml", "linked/fifo.json", "loop.yaml", "mem.yaml", "real", "secret.yaml", "stdin.yaml", "up.yaml", "zero.yaml"}
	if !slices.Equal(wrong, want) {
		t.Errorf("the problems are %v", r.Problems)
	}
	said := strings.ReplaceAll(strings.Join(r.Skipped, "\n"), dir, "DIR")
	if said != "hidden names below DIR are not read: .hidden.yaml and .x\n"+`links below DIR are not read that lead out of it or nowhere: \u001b[2J, away and linked/up` {
		t.Errorf("it says %s", said)
	}
}

// TestATreeIsBounded in names, manifests, bytes and depth; more is an error, and what is in force stays.
func TestATreeIsBounded(t *testing.T) {
	files := map[string]string{"a.yaml": sourcetest.Pod("a", ""), "b/c/d/e.yaml": sourcetest.Pod("e", "")}
	for i := range 20 {
		files["x"+strconv.Itoa(i)] = ""
	}
	dir := sourcetest.WriteFiles(t, files)
	for want, limit := range map[string]func(*limits){
		"has more than 24 files and directories": func(l *limits) { l.names = 24 },
		"has more than 5 files and directories":  func(l *limits) { l.names = 5 },
		"has more than 1 manifests":              func(l *limits) { l.manifests = 1 },
		"has more than 100 bytes of manifests":   func(l *limits) { l.bytes = 100 },
		"b/c/d: is below more than 2":            func(l *limits) { l.depth = 2 },
	} {
		d, err := Open(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if r := readOnce(t, d); len(r.Problems) > 0 {
			t.Fatal(r.Problems)
		}
		limit(&d.limits)
		r := readOnce(t, d)
		if len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Error(), want) {
			t.Errorf("%s: %v", want, r.Problems)
		}
		if !strings.Contains(want, "below") {
			expectNames(t, r, "Pod shop/a, Pod shop/e")
		}
	}
	if most := defaultLimits(); most.bytes < manifest.MaxSize || most.manifests > most.names {
		t.Error(most)
	}
}
