package host

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/weave-npc/weave-npc/iptables/ports"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Main(m)) }

// journal is a log that tests read.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// count returns the number of lines with a text.
func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for line := range strings.Lines(j.text.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// brittle is the table of a guard, which fails on demand.
type brittle struct {
	ports.Table
	broken atomic.Bool
}

func (b *brittle) Ports() ([]int, bool, error) {
	if b.broken.Load() {
		return nil, false, errors.New("no nftables")
	}
	return b.Table.Ports()
}

// bridgePorts makes bridges with ports, and has a network namespace for the peers of the ports.
type bridgePorts struct {
	*testing.T
	elsewhere netns.NsHandle
}

// elsewhere returns another network namespace. The test keeps to its thread, and to the namespace that it is in.
func elsewhere(t *testing.T) netns.NsHandle {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	here, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	there, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = there.Close() })
	if err := netns.Set(here); err != nil {
		t.Fatal(err)
	}
	return there
}

func (b *bridgePorts) bridge(name string) netlink.Link {
	b.Helper()
	return b.add(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}})
}

// port adds a veth to a bridge, which leads to another namespace.
func (b *bridgePorts) port(bridge netlink.Link, name string) int {
	b.Helper()
	return b.add(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index}, PeerName: name + "p",
		PeerNamespace: netlink.NsFd(b.elsewhere)}).Attrs().Index
}

// join joins two bridges by a veth.
func (b *bridgePorts) join(one, other netlink.Link) {
	b.Helper()
	b.add(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "inner", MasterIndex: one.Attrs().Index}, PeerName: "outer"})
	outer, err := netlink.LinkByName("outer")
	if err != nil {
		b.Fatal(err)
	}
	if err := netlink.LinkSetMaster(outer, other); err != nil {
		b.Fatal(err)
	}
}

func (b *bridgePorts) add(l netlink.Link) netlink.Link {
	b.Helper()
	if err := netlink.LinkAdd(l); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = netlink.LinkDel(l) })
	return l
}

// guarded waits until the kernel guards these ports as a table has it; nil means that it has no such table.
func (b *bridgePorts) guarded(when string, table ports.Table, want []int) {
	b.Helper()
	slices.Sort(want)
	await.That(b, when, func() bool {
		ports, whole, err := table.Ports()
		return err == nil && whole == (want != nil) && slices.Equal(ports, want)
	})
}

func TestGuardFollowsThePortsOfPods(t *testing.T) {
	b := &bridgePorts{t, elsewhere(t)}
	said := &journal{}
	attachment := Attachment{Interface: "cni0", BridgePort: "vethwe-bridge", InRange: func(netip.Addr) bool { return false }}
	start := func(table bridgeTable) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		g := NewGuard(attachment, table, slog.New(slog.NewTextHandler(said, nil)))
		go func() { done <- g.Run(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	table := &brittle{}
	stop := start(table)
	b.guarded("no bridge", table.Table, nil)
	pods, others := b.bridge("cni0"), b.bridge("other0")
	b.guarded("no port", table.Table, []int{})
	first := b.port(pods, "first")
	b.port(others, "foreign")
	b.join(pods, others)
	b.port(pods, "vethwe-bridge")
	b.add(&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "uplink0", MasterIndex: pods.Attrs().Index}, VxlanId: 5, Port: 4789})
	b.guarded("a pod's port", table.Table, []int{first})
	second := b.port(pods, "second")
	b.guarded("another one", table.Table, []int{first, second})
	tap := b.add(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tap0"}, Mode: netlink.TUNTAP_MODE_TAP})
	if err := netlink.LinkSetMaster(tap, pods); err != nil {
		t.Fatal(err)
	}
	b.guarded("a virtual machine", table.Table, []int{first, second, tap.Attrs().Index})
	if err := netlink.LinkDel(tap); err != nil {
		t.Fatal(err)
	}
	b.guarded("it has ended", table.Table, []int{first, second})

	table.broken.Store(true)
	await.That(t, "reporting it", func() bool { return said.count("cannot be guarded") == 1 })
	if out, err := exec.Command("nft", "delete", "table", "bridge", "weave-npc").CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	table.broken.Store(false)
	b.guarded("repaired", table.Table, []int{first, second})
	await.That(t, "reporting that", func() bool {
		return said.count("guarded again") == 1 && said.count("drift found") == 1
	})
	link, err := netlink.LinkByIndex(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkDel(link); err != nil {
		t.Fatal(err)
	}
	b.guarded("the first is gone", table.Table, []int{second})
	stop()
	b.guarded("the guard has ended", table.Table, []int{second})
	allowing := ports.Table{AllowVLAN: true}
	stop = start(allowing)
	b.guarded("tags are allowed", allowing, []int{second})
	stop()
}
