package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/golden"
)

// files writes files into a directory of the test's.
func files(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const control = "Package: libc6\nVersion: 2:2.36-9+deb12u4\nArchitecture: amd64\nDescription: libraries\n Version: of the text\n"

func TestDocument(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	packages := files(t, map[string]string{"libc6": control})
	var out, again bytes.Buffer
	args := []string{"-binary", binary, "-packages", packages}
	if err := run(args, &out); err != nil {
		t.Fatal(err)
	}
	if err := run(args, &again); err != nil || out.String() != again.String() {
		t.Errorf("the same input gives another document: %v", err)
	}
	var d document
	if err := json.Unmarshal(out.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	locators := map[string]bool{}
	ids := map[string]bool{documentID: true}
	for _, p := range d.Packages {
		ids[p.SPDXID] = true
		locators[p.ExternalRefs[0].Locator] = true
	}
	if !locators["pkg:deb/debian/libc6@2%3A2.36-9%2Bdeb12u4?arch=amd64"] {
		t.Errorf("the package of Debian is missing: %v", locators)
	}
	if !strings.Contains(out.String(), "pkg:golang/stdlib@") || d.Packages[0].Declared != "Apache-2.0" {
		t.Errorf("the document is\n%s", out.String())
	}
	if len(d.Relationships) != len(d.Packages) || d.Relationships[0].Type != "DESCRIBES" {
		t.Errorf("%d relationships of %d packages", len(d.Relationships), len(d.Packages))
	}
	for _, r := range d.Relationships {
		if !ids[r.Element] || !ids[r.Related] {
			t.Errorf("%+v names no element of the document", r)
		}
	}
}

func TestErrors(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	good := files(t, map[string]string{"libc6": control})
	for want, c := range map[string]struct{ binary, packages string }{
		"was built from": {filepath.Join(good, "libc6"), good},
		"holds no":       {binary, t.TempDir()},
		"lacks a name":   {binary, files(t, map[string]string{"x": "Package: x\nVersion: 1\n"})},
		"control file":   {binary, filepath.Dir(good)}, // its entries are directories
		"looking for":    {binary, "["},
	} {
		if err := run([]string{"-binary=" + c.binary, "-packages=" + c.packages}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := run([]string{"-image=x"}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "-image") {
		t.Errorf("of an unknown flag: %v", err)
	}
}

// TestContents shows the document of a release: when it was made, what it is about, and what was built in another
// module's place, from elsewhere or from a folder of the same commit.
func TestContents(t *testing.T) {
	d := newDocument(&debug.BuildInfo{Main: debug.Module{Path: "example.org/npc", Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.time", Value: "2024-05-06T07:08:09Z"}, {Key: "vcs.revision", Value: "abc"}, {Key: "CGO_ENABLED", Value: "0"}}})
	d.add(goModule(&debug.Module{Path: "example.org/a", Version: "v1.0.0+incompatible"}, "v1.2.3"))
	d.add(goModule(&debug.Module{Path: "example.org/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/c_d", Version: "v2.0.0"}}, "v1.2.3"))
	d.add(goModule(&debug.Module{Path: "example.org/e", Version: "v0.0.0", Replace: &debug.Module{Path: "../..", Version: "(devel)"}}, "v1.2.3"))
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/release.json", string(text)+"\n")
}
