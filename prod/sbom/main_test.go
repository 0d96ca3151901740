package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write writes files into a directory of the test's.
func write(t *testing.T, files map[string]string) string {
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
	packages := write(t, map[string]string{"libc6": control})
	var out, again bytes.Buffer
	if err := run(binary, packages, &out); err != nil {
		t.Fatal(err)
	}
	if err := run(binary, packages, &again); err != nil || out.String() != again.String() {
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
	good := write(t, map[string]string{"libc6": control})
	for want, c := range map[string]struct{ binary, packages string }{
		"was built from": {filepath.Join(good, "libc6"), good},
		"holds no":       {binary, t.TempDir()},
		"lacks a name":   {binary, write(t, map[string]string{"x": "Package: x\nVersion: 1\n"})},
		"control file":   {binary, filepath.Dir(good)}, // its entries are directories
		"looking for":    {binary, "["},
	} {
		if err := run(c.binary, c.packages, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
