// Package speed measures the weave-npc command as a whole, and compares it with a floor, the minimum that any such
// program does: three informers of client-go that keep next to nothing, and one message to the kernel for an event.
// Both read from the same server, which is a part of the benchmark and has all answers ready.
package speed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// roleVariable holds the role of a process of this test binary: none at first, then the one in namespaces of its own,
// or the floor.
const (
	roleVariable = "WEAVE_NPC_TEST_SPEED_ROLE"
	roleInside   = "inside"
	roleFloor    = "floor"
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(roleVariable) {
	case roleFloor:
		err = floor(os.Args[1])
	case roleInside:
		if err = furnish(); err == nil {
			os.Exit(m.Run())
		}
	default:
		err = runInside()
	}
	if exit := (&exec.ExitError{}); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "measuring in a network namespace, which needs root:", err)
		os.Exit(1)
	}
}

// runInside runs this binary again, as it was called, alone in a network namespace.
func runInside() error {
	runtime.LockOSThread() // the child dies with the thread that made it
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), roleVariable+"="+roleInside)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	return cmd.Run()
}

// furnish makes the namespace a node.
func furnish() error {
	// Legacy iptables has its lock in /run, and /sys shows the devices of the namespace that it was mounted in.
	for dir, kind := range map[string]string{"/run": "tmpfs", "/sys": "sysfs"} {
		if err := unix.Mount(kind, dir, kind, 0, ""); err != nil {
			return errors.Wrapf(err, "mounting %s", dir)
		}
	}
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}); err != nil {
		return errors.Wrap(err, "making cni0")
	}
	for _, name := range []string{"lo", "cni0"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return errors.Wrapf(err, "looking for %s", name)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return errors.Wrapf(err, "setting up %s", name)
		}
	}
	return nil
}

// build builds the command.
func build(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "weave-npc")
	cmd := exec.Command("go", "build", "-o", path, "github.com/weave-npc/weave-npc/cmd/weave-npc")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("building weave-npc: %v\n%s", err, output)
	}
	return path
}
