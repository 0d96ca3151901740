package iptables

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weave-npc/weave-npc/test/await"
)

// TestProgramsEndWithUs: what a program of a weave-npc that was killed still does would come after what the next one
// does.
func TestProgramsEndWithUs(t *testing.T) {
	const variable = "WEAVE_NPC_TEST_PROGRAM"
	if path := os.Getenv(variable); path != "" {
		_, _, err := run(context.Background(), "", "/bin/sh", "-c", "echo $$ >"+path+"; exec sleep 60")
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "pid")
	us := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	us.Env = append(os.Environ(), variable+"="+path)
	if err := us.Start(); err != nil {
		t.Fatal(err)
	}
	var pid string
	await.That(t, "start of the program", func() bool {
		text, err := os.ReadFile(path)
		pid = strings.TrimSpace(string(text))
		return err == nil && pid != ""
	})
	if err := us.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = us.Wait() // it was killed
	await.That(t, "end of the program", func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", pid))
		return err != nil || strings.Contains(string(status), ") Z ")
	})
}

// TestErrorOutputIsBounded: a program that floods its error output takes no memory and does not block.
func TestErrorOutputIsBounded(t *testing.T) {
	_, stderr, err := run(t.Context(), "", "/bin/sh", "-c", "echo first >&2; head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 3")
	if err == nil || !strings.HasPrefix(stderr, "first\n") || len(stderr) != maxOutput {
		t.Errorf("%d bytes, %.20q, are kept, and the error is %v; want %d bytes and an error", len(stderr), stderr, err, maxOutput)
	}
}
