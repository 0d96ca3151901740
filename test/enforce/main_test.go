// Package enforce asks what happens to packets when the weave-npc command runs on nodes made of network namespaces.
//
// A test's name begins with the promises that it shows, by their numbers (S17).
package enforce

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/pkg/errors"

	"github.com/weave-npc/weave-npc/test/lab"
)

// commandVariable holds the path of the weave-npc command that this run of the tests has built.
const commandVariable = "WEAVE_NPC_TEST_COMMAND"

func TestMain(m *testing.M) { os.Exit(lab.Main(builder{m})) }

// builder builds the command before the tests run, and removes it afterwards.
type builder struct{ tests *testing.M }

// Run implements the interface that lab.Main wants.
func (b builder) Run() int {
	dir, err := os.MkdirTemp("", "weave-npc-enforce-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// Tests wait for packets that must not arrive: more of them than there are processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return b.tests.Run()
}

// build builds the command with the race detector.
func build(dir string) error {
	command := filepath.Join(dir, "weave-npc")
	output, err := exec.Command("go", "build", "-race", "-o", command,
		"github.com/weave-npc/weave-npc/cmd/weave-npc").CombinedOutput()
	if err != nil {
		return errors.Wrapf(err, "building weave-npc: %s", output)
	}
	return errors.Wrap(os.Setenv(commandVariable, command), "naming the command")
}

// command is the path of the weave-npc command.
func command() string { return os.Getenv(commandVariable) }
