package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnusedMethodsAreNotLinked checks that the program has no templates: they call methods by name, so the linker
// keeps every exported method, which would be half of the program and a third of its memory. It is built as releases
// are: with cgo, Go's plug-ins keep the same methods, and kustomize imports them.
func TestUnusedMethodsAreNotLinked(t *testing.T) {
	program := filepath.Join(t.TempDir(), "weave-npc")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	symbols, err := exec.CommandContext(t.Context(), "go", "tool", "nm", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(symbols), " main.main\n") {
		t.Fatal("the program has no symbols")
	}
	if strings.Contains(string(symbols), " text/template.(*Template).Execute\n") {
		t.Error("text/template is linked")
	}
	if strings.Contains(string(symbols), "github.com/spf13/cobra/doc.") {
		t.Error("what writes manual pages is linked")
	}
}
