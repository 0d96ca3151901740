// Package sandbox runs tests in network namespaces: all tests of a package in a process that is alone in one, or a test
// in one of its own. Tests make no network namespace except with this package and package lab: `make unit` leaves out the
// packages that use either.
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// outside is the variable that holds the network namespace of the process that started a test process.
const outside = "WEAVE_NPC_TEST_OUTSIDE"

// Runner is the part of testing.M that this package uses.
type Runner interface{ Run() int }

// Main runs tests in a process that is alone in a network namespace, with a /run and a /sys of its own, and returns the
// exit status. What is tested uses several threads, so that one thread's namespace would not do.
func Main(tests Runner) int {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return fail(err)
	}
	if from := os.Getenv(outside); from == "" || from == own {
		return runInside(own)
	}
	if err := furnish(); err != nil {
		return fail(err)
	}
	return tests.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "making a network namespace for the tests of this package, which needs root:", err)
	return 1
}

// runInside runs this test binary again, as it was called, in fresh namespaces, and returns its exit status.
func runInside(own string) int {
	runtime.LockOSThread() // the child dies with the thread that made it
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), outside+"="+own)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		if err != nil {
			return fail(err)
		}
		return 0
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}

// Thread puts the test's thread into a fresh network namespace, with lo up. The thread is never unlocked, so thread and
// namespace end with the test.
func Thread(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("making a network namespace, which needs root: %v", err)
	}
	if err := setUpLoopback(); err != nil {
		t.Fatal(err)
	}
}

// furnish sets up what a network namespace needs to be used.
func furnish() error {
	// Legacy iptables has its lock in /run, and /sys shows the devices of the namespace that it was mounted in.
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mounting /run: %w", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mounting /sys: %w", err)
	}
	return setUpLoopback()
}

func setUpLoopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("looking for lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	return nil
}

// KernelsVariable is set where tests run for the kernel's sake, which then has to have what they need (make kernels).
const KernelsVariable = "WEAVE_NPC_TEST_KERNELS"

// Lacks ends a test that needs what few kernels have. It fails where tests run for the kernel's sake.
func Lacks(t testing.TB, what string, why error) {
	t.Helper()
	if os.Getenv(KernelsVariable) != "" {
		t.Fatalf("the kernel has no %s: %v", what, why)
	}
	t.Skipf("this kernel has no %s (%v): make kernels runs this under kernels that do", what, why)
}
