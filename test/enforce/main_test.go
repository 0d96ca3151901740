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
	"strconv"
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
	// Tests wait for packets that must not arrive: more of them than there are processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary, err := build()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer binary.Close()
	return b.tests.Run()
}

// build builds the command, with the race detector unless its cost is measured or it starts thousands of times. No file
// is left but the open one, which the kernel removes when this process ends, however that is.
func build() (*os.File, error) {
	dir, err := os.MkdirTemp("", "weave-npc-enforce-")
	if err != nil {
		return nil, errors.Wrap(err, "making a directory")
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "weave-npc")
	// The race detector takes more and more memory, and many times the time.
	race := strconv.FormatBool(os.Getenv(floodVariable) == "" && os.Getenv(soakVariable) == "" && os.Getenv(upgradeVariable) == "" &&
		os.Getenv(longVariable) == "" && os.Getenv(relayKillsVariable) == "")
	output, err := exec.Command("go", "build", "-race="+race, "-o", path,
		"github.com/weave-npc/weave-npc/cmd/weave-npc").CombinedOutput()
	if err != nil {
		return nil, errors.Wrapf(err, "building weave-npc: %s", output)
	}
	binary, err := os.Open(path)
	if err != nil {
		return nil, errors.Wrap(err, "opening the binary")
	}
	path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), binary.Fd())
	return binary, errors.Wrap(os.Setenv(commandVariable, path), "naming the command")
}

// command returns the path of the weave-npc command.
func command() string { return os.Getenv(commandVariable) }
