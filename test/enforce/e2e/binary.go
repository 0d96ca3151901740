package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/test/lab"
)

// commandVariable holds the path of the weave-npc command that this run of the tests has built.
const commandVariable = "WEAVE_NPC_TEST_COMMAND"

// builtVariable holds the path of a weave-npc command that was built before, where nothing can be built.
const builtVariable = "WEAVE_NPC_TEST_BINARY"

// Main builds weave-npc and runs the tests of a package, for TestMain: os.Exit(e2e.Main(m)).
func Main(m *testing.M) int { return lab.Main(builder{m}) }

// Command returns the path of the weave-npc command.
func Command() string { return os.Getenv(commandVariable) }

// builder builds the command before the tests run.
type builder struct{ tests *testing.M }

// Run implements the interface that lab.Main wants.
func (b builder) Run() int {
	// Tests wait for packets that must not arrive: more of them than there are processors, though go test runs the
	// tests of other packages at the same time.
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary, err := command()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer binary.Close()
	return b.tests.Run()
}

// command opens the command, which it builds if it was not built before. It is named by a descriptor, which stays valid
// when another run builds a new one.
func command() (*os.File, error) {
	open := build
	if path := os.Getenv(builtVariable); path != "" {
		open = func() (*os.File, error) { return os.Open(path) }
	}
	binary, err := open()
	if err != nil {
		return nil, err
	}
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), binary.Fd())
	return binary, errors.Wrap(os.Setenv(commandVariable, path), "naming the command")
}

// build builds the command into .cache/e2e, with the race detector if the tests have it, and opens it. The packages
// of a run take turns, and only the first one links: later ones find the file up to date.
func build() (*os.File, error) {
	cache, err := lab.CacheDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "e2e")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, errors.Wrapf(err, "making %s", dir)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, errors.Wrap(err, "opening the lock of weave-npc's build")
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Wrapf(err, "locking %s", lock.Name())
	}
	path := filepath.Join(dir, "weave-npc")
	if race {
		path += "-race"
	}
	output, err := exec.Command("go", "build", "-race="+strconv.FormatBool(race), "-o", path,
		"github.com/weave-npc/weave-npc/cmd/weave-npc").CombinedOutput()
	if err != nil {
		return nil, errors.Wrapf(err, "building weave-npc: %s", output)
	}
	binary, err := os.Open(path)
	return binary, errors.Wrap(err, "opening the binary")
}
