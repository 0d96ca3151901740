package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnusedMethodsAreNotLinked checks that the program has no templates: they call methods by name, so the linker
// keeps every exported method, which would be half of the program and a third of its memory.
func TestUnusedMethodsAreNotLinked(t *testing.T) {
	program := filepath.Join(t.TempDir(), "weave-npc")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
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
