// Package release asks what is in a release, and how it is tagged.
package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const top = "../.."

// releaseVariable names the directory that prod/release has filled. "make release" sets it.
const releaseVariable = "WEAVE_NPC_TEST_RELEASE"

// directory returns the release that is to be looked at.
func directory(t *testing.T) string {
	t.Helper()
	dir := os.Getenv(releaseVariable)
	if dir == "" {
		t.Skipf("$%s names no release: make release makes one and looks at it", releaseVariable)
	}
	return dir
}

// entry is a file of an archive.
type entry struct {
	text []byte
	mode os.FileMode
}

// unpack returns the files of an archive, a tar in gzip or a zip.
func unpack(t *testing.T, path string) map[string]entry {
	t.Helper()
	text := read(t, path)
	files := map[string]entry{}
	if strings.HasSuffix(path, ".zip") {
		r, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.File {
			in, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			files[f.Name] = entry{all(t, in), f.Mode()}
		}
		return files
	}
	plain, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			files[h.Name] = entry{all(t, r), h.FileInfo().Mode()}
		}
	}
}

func all(t *testing.T, r io.Reader) []byte {
	t.Helper()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestPluginArchives looks into the archives of the plug-in, and compares them with the manifest for krew.
func TestPluginArchives(t *testing.T) {
	dir := directory(t)
	m := readKrew(t, read(t, filepath.Join(dir, "npc.yaml")))
	for _, p := range m.Spec.Platforms {
		t.Run(p.system(), func(t *testing.T) {
			path := filepath.Join(dir, filepath.Base(p.URI))
			sum := sha256.Sum256(read(t, path))
			if hex.EncodeToString(sum[:]) != p.Sha256 {
				t.Errorf("its sum is %x, and krew expects %s", sum, p.Sha256)
			}
			complete := "kubectl_complete-npc"
			if strings.HasSuffix(p.Bin, ".exe") {
				complete += ".cmd"
			}
			checkFiles(t, unpack(t, path), "", p.Bin, p.system(), complete)
		})
	}
}

// TestArchivesOfTheDaemon looks into those of weave-npc.
func TestArchivesOfTheDaemon(t *testing.T) {
	dir := directory(t)
	for _, arch := range []string{"amd64", "arm64"} {
		paths, err := filepath.Glob(filepath.Join(dir, "weave-npc-v*-linux-"+arch+".tar.gz"))
		if err != nil || len(paths) != 1 {
			t.Fatalf("archives for %s: %q, %v", arch, paths, err)
		}
		inside := strings.TrimSuffix(filepath.Base(paths[0]), ".tar.gz") + "/"
		checkFiles(t, unpack(t, paths[0]), inside, "weave-npc", "linux_"+arch)
	}
}

// checkFiles checks the files of an archive below a folder: the program for a system, its licence, its manual, what
// shells complete it by, and further scripts.
func checkFiles(t *testing.T, files map[string]entry, folder, program, system string, scripts ...string) {
	t.Helper()
	name := strings.TrimSuffix(program, ".exe")
	want := []string{"LICENSE", program, "man1/" + name + ".1", "man1/" + name + "-explain.1", "completions/" + name + ".bash", "completions/_" + name,
		"completions/" + name + ".fish", "completions/" + name + ".ps1"}
	for _, w := range slices.Concat(want, scripts) {
		if len(files[folder+w].text) == 0 {
			t.Errorf("it has no %s", w)
		}
	}
	for _, executable := range append(scripts, program) {
		if files[folder+executable].mode&0o111 == 0 && !strings.HasSuffix(executable, ".cmd") {
			t.Errorf("%s cannot be executed", executable)
		}
	}
	for path := range files {
		if !strings.HasPrefix(path, folder) || !strings.Contains(path, "/man1/") && !strings.HasPrefix(path, "man1/") &&
			!slices.Contains(slices.Concat(want, scripts), strings.TrimPrefix(path, folder)) {
			t.Errorf("it has %s", path)
		}
	}
	built, err := buildinfo.Read(bytes.NewReader(files[folder+program].text))
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, s := range built.Settings {
		settings[s.Key] = s.Value
	}
	if got := settings["GOOS"] + "_" + settings["GOARCH"]; got != system || settings["CGO_ENABLED"] != "0" || settings["vcs.modified"] != "false" {
		t.Errorf("the program is for %s: %v", got, settings)
	}
	check := exec.CommandContext(t.Context(), "bash", "-n")
	check.Stdin = bytes.NewReader(files[folder+"completions/"+name+".bash"].text)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("bash does not read its completion: %v\n%s", err, out)
	}
}

// TestSums checks that the list of sums has every file.
func TestSums(t *testing.T) {
	dir := directory(t)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(read(t, filepath.Join(dir, "SHA256SUMS")))) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[name] = sum
	}
	for _, e := range entries {
		if e.Name() == "SHA256SUMS" {
			continue
		}
		sum := sha256.Sum256(read(t, filepath.Join(dir, e.Name())))
		if listed[e.Name()] != hex.EncodeToString(sum[:]) {
			t.Errorf("%s has the sum %x, and %q is listed", e.Name(), sum, listed[e.Name()])
		}
		delete(listed, e.Name())
	}
	if len(listed) > 0 {
		t.Errorf("these are listed and not there: %v", listed)
	}
}

// TestImageIndex checks that one index has the images of both architectures, of weave-npc and of the relay, and that
// each image has its bill.
func TestImageIndex(t *testing.T) {
	dir := directory(t)
	for _, image := range []string{"weave-npc", "weave-npc-relay"} {
		t.Run(image, func(t *testing.T) {
			paths, err := filepath.Glob(filepath.Join(dir, image+"-v*-image.oci.tar.gz"))
			if err != nil || len(paths) != 1 {
				t.Fatalf("indexes: %q, %v", paths, err)
			}
			checkIndex(t, unpack(t, paths[0]))
			for _, arch := range []string{"amd64", "arm64"} {
				stem := strings.TrimSuffix(paths[0], ".oci.tar.gz") + "-" + arch
				if files := unpack(t, stem+".tar.gz"); len(files["manifest.json"].text) == 0 {
					t.Errorf("%s.tar.gz is no image", stem)
				}
				if bill := read(t, stem+".spdx.json"); !strings.Contains(string(bill), `"name": "`+image+`"`) {
					t.Errorf("%s.spdx.json is not the bill of %s", stem, image)
				}
			}
		})
	}
}

// TestArchivesOfTheRelay looks into those of weave-npc-relay, whose version has to be that of the release although it
// is a module of its own.
func TestArchivesOfTheRelay(t *testing.T) {
	dir := directory(t)
	for _, arch := range []string{"amd64", "arm64"} {
		paths, err := filepath.Glob(filepath.Join(dir, "weave-npc-relay-v*-linux-"+arch+".tar.gz"))
		if err != nil || len(paths) != 1 {
			t.Fatalf("archives for %s: %q, %v", arch, paths, err)
		}
		folder := strings.TrimSuffix(filepath.Base(paths[0]), ".tar.gz")
		files := unpack(t, paths[0])
		program := files[folder+"/weave-npc-relay"]
		if len(files) != 2 || len(files[folder+"/LICENSE"].text) == 0 || program.mode&0o111 == 0 {
			t.Errorf("%s has %v", paths[0], slices.Sorted(maps.Keys(files)))
		}
		built, err := buildinfo.Read(bytes.NewReader(program.text))
		if err != nil {
			t.Fatal(err)
		}
		settings := map[string]string{}
		for _, s := range built.Settings {
			settings[s.Key] = s.Value
		}
		version := strings.TrimSuffix(strings.TrimPrefix(folder, "weave-npc-relay-"), "-linux-"+arch)
		if got := settings["GOOS"] + "_" + settings["GOARCH"]; got != "linux_"+arch || settings["CGO_ENABLED"] != "0" || settings["vcs.modified"] != "false" ||
			built.Main.Version != version {
			t.Errorf("the program is %s for %s: %v", built.Main.Version, got, settings)
		}
	}
}
