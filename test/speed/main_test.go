// Package speed measures the weave-npc command as a whole, and compares it with a floor, the minimum that any such
// program does: three informers of client-go that keep next to nothing, and one message to the kernel for an event.
// Both read from the same server, which is a part of the benchmark and has all answers ready.
package speed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"

	"github.com/weave-npc/weave-npc/test/sandbox"
)

// roleVariable is set to roleFloor in a process of this test binary that is the floor.
const (
	roleVariable = "WEAVE_NPC_TEST_SPEED_ROLE"
	roleFloor    = "floor"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != roleFloor {
		os.Exit(sandbox.Main(onNode{m}))
	}
	if err := floor(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "measuring the floor:", err)
		os.Exit(1)
	}
}

// onNode runs the tests of this package on a node, which has a bridge.
type onNode struct{ tests *testing.M }

// Run implements sandbox.Runner.
func (n onNode) Run() int {
	if err := addBridge(); err != nil {
		fmt.Fprintln(os.Stderr, "making a node:", err)
		return 1
	}
	return n.tests.Run()
}

func addBridge() error {
	cni0 := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}
	if err := netlink.LinkAdd(cni0); err != nil {
		return errors.Wrap(err, "making cni0")
	}
	return errors.Wrap(netlink.LinkSetUp(cni0), "setting up cni0")
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
