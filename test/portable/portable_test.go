// Package portable asks whether what answers questions is for every system, and whether what needs Linux stays apart
// from it.
package portable

import (
	"bytes"
	"go/build/constraint"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	top     = "../.."
	module  = "github.com/weave-npc/weave-npc"
	program = module + "/cmd/weave-npc"
)

// onlyLinux are the packages with the commands that only Linux has: the daemon, and those that read the kernel.
func onlyLinux() []string { return []string{program + "/internal/daemon", program + "/internal/node"} }

// system is what a program is built for.
type system struct{ os, arch string }

func (s system) String() string { return s.os + "/" + s.arch }

// others are the systems that only ask.
func others() []system {
	return []system{{"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"}}
}

// run runs the go command for a system.
func run(t *testing.T, s system, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = top
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+s.os, "GOARCH="+s.arch)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: go %s: %v\n%s", s, strings.Join(args, " "), err, stderr.String())
	}
	return strings.Fields(string(out))
}

// TestOnlyLinuxHasWhatEnforces lists what the program has on other systems: no package of the module that only the
// packages onlyLinux need, and no library that touches the kernel.
func TestOnlyLinuxHasWhatEnforces(t *testing.T) {
	linux := system{"linux", "amd64"}
	all := run(t, linux, "list", "-deps", "./cmd/weave-npc")
	kernel := []string{"github.com/vishvananda/netlink", "github.com/vishvananda/netns", "github.com/coreos/go-iptables/iptables", "github.com/google/nftables",
		"github.com/mdlayher/netlink", "github.com/gopacket/gopacket"}
	var expected []string
	for _, p := range kernel {
		if slices.Contains(all, p) {
			expected = append(expected, p)
		}
	}
	if len(expected) < 3 {
		t.Errorf("of the libraries that touch the kernel, the program has only %q on Linux", expected)
	}
	for _, s := range others() {
		t.Run(s.os+"_"+s.arch, func(t *testing.T) {
			has := run(t, s, "list", "-deps", "./cmd/weave-npc")
			apart := behind(t, linux, has)
			if len(apart) < 20 || !slices.Contains(apart, module+"/npc/enforce/syncer") || !slices.Contains(apart, module+"/ipset") {
				t.Errorf("only these packages would be apart: %q", apart)
			}
			for _, p := range slices.Concat(apart, kernel, onlyLinux()) {
				if slices.Contains(has, p) {
					t.Errorf("it has %s", p)
				}
			}
			for _, p := range []string{"/cmd/weave-npc/internal/kubectl", "/npc/analysis/explain", "/npc/analysis/internal/reachability"} {
				if !slices.Contains(has, module+p) {
					t.Errorf("it lacks %s", p)
				}
			}
		})
	}
}

// behind returns the packages of the module that only the packages onlyLinux need. All packages of another system must
// be needed by its commands.
func behind(t *testing.T, s system, has []string) (apart []string) {
	t.Helper()
	roots := run(t, s, "list", "-f", `{{join .Imports "\n"}}`, "./cmd/weave-npc/internal/rootcmd")
	roots = slices.DeleteFunc(roots, func(p string) bool { return !strings.HasPrefix(p, module+"/") || slices.Contains(onlyLinux(), p) })
	asked := run(t, s, append([]string{"list", "-deps"}, roots...)...)
	for _, p := range run(t, s, append([]string{"list", "-deps"}, onlyLinux()...)...) {
		if strings.HasPrefix(p, module+"/") && !slices.Contains(asked, p) {
			apart = append(apart, p)
		}
	}
	for _, p := range has {
		if strings.HasPrefix(p, module+"/") && !slices.Contains(asked, p) && p != program && p != program+"/internal/rootcmd" {
			t.Errorf("%s is neither what asks nor what it needs", p)
		}
	}
	return apart
}

// TestSystemsAreDistinguishedAtTheSeam: only there do files have a system in their name or in a constraint.
func TestSystemsAreDistinguishedAtTheSeam(t *testing.T) {
	seam := map[string]string{
		"cmd/weave-npc/internal/rootcmd/enforce_linux.go": "linux",
		"cmd/weave-npc/internal/rootcmd/enforce_other.go": "!linux",
		"npc/source/internal/directory/identity_linux.go": "linux", // which only the daemon makes use of
		"npc/source/internal/directory/identity_other.go": "!linux",
	}
	suffix := regexp.MustCompile(`_(aix|android|darwin|dragonfly|freebsd|illumos|ios|js|linux|netbsd|openbsd|plan9|solaris|wasip1|windows|` +
		`386|amd64|arm|arm64|loong64|mips|ppc64le|riscv64|s390x|wasm)(_test)?\.go$`)
	found := map[string]string{}
	for path, text := range sources(t) {
		constrained := ""
		if m := suffix.FindStringSubmatch(path); m != nil {
			constrained = m[1]
		}
		for line := range strings.Lines(text) {
			if constraint.IsGoBuild(line) {
				constrained = strings.TrimSpace(strings.TrimPrefix(line, "//go:build"))
			}
		}
		if constrained != "" && strings.TrimPrefix(constrained, "!") != "race" { // the race detector is no system
			found[path] = constrained
		}
	}
	if !maps.Equal(found, seam) {
		t.Errorf("these files are for some systems:\n%q\nand these are the seam:\n%q", found, seam)
	}
}

// sources returns the files of the module without tests, path -> text.
func sources(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != top {
			_, other := os.Stat(filepath.Join(path, "go.mod"))
			if other == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin" {
				return fs.SkipDir
			}
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(top, path)
		all[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 300 {
		t.Errorf("only %d files were found", len(all))
	}
	return all
}
