package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnusedMethodsAreNotLinked: the linker keeps every exported method once one may be called by a name that it does not know, as
// templates do. Half of the program and a third of what it occupies in memory would be such.
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
}

func TestMemoryLimit(t *testing.T) {
	for _, c := range []struct {
		name, text string
		limit      int64
		limited    bool
	}{
		{"limited", "209715200\n", 188743680, true},
		{"version 2, not limited", "max\n", 0, false},
		{"version 1, not limited", "9223372036854771712\n", 0, false},
		{"empty", "", 0, false},
		{"nothing at all", "0\n", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if limit, limited := memoryLimit(c.text); limit != c.limit || limited != c.limited {
				t.Errorf("%d, %t", limit, limited)
			}
		})
	}
}
