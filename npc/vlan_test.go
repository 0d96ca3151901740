package npc_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/weave-npc/weave-npc/iptables"
	"github.com/weave-npc/weave-npc/npc"
)

// brittle is a guard of VLAN tags that fails if it is told to.
type brittle struct {
	iptables.VLANGuard
	broken atomic.Bool
}

func (b *brittle) Ports() ([]int, bool, error) {
	if b.broken.Load() {
		return nil, false, errors.New("no nftables")
	}
	return b.VLANGuard.Ports()
}

// bridgePorts are bridges with ports, and a network namespace that the ports lead to.
type bridgePorts struct {
	*testing.T
	elsewhere netns.NsHandle
}

func newBridgePorts(t *testing.T) *bridgePorts {
	t.Helper()
	return &bridgePorts{t, elsewhere(t)}
}

// elsewhere is another network namespace. The test keeps to its thread, and to the namespace that it is in.
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

// port adds a veth to a bridge; it leads to another namespace, unless it is local.
func (b *bridgePorts) port(bridge netlink.Link, name string, local bool) int {
	b.Helper()
	l := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index}, PeerName: name + "p"}
	if !local {
		l.PeerNamespace = netlink.NsFd(b.elsewhere)
	}
	return b.add(l).Attrs().Index
}

func (b *bridgePorts) add(l netlink.Link) netlink.Link {
	b.Helper()
	if err := netlink.LinkAdd(l); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = netlink.LinkDel(l) })
	return l
}

// guarded waits until the kernel guards these ports; nil says that it has no table for that.
func (b *bridgePorts) guarded(when string, want []int) {
	b.Helper()
	slices.Sort(want)
	eventually(b, when, func() bool {
		ports, whole, err := iptables.VLANGuard{}.Ports()
		return err == nil && whole == (want != nil) && slices.Equal(ports, want)
	})
}

func TestVLANGuardFollowsThePortsOfPods(t *testing.T) {
	b := newBridgePorts(t)
	journal := &journal{}
	table := &brittle{}
	guard := func(allow bool) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		g := npc.NewVLANGuardOn(newModelWorld(t).model.Model, allow, table, journal.logger())
		go func() { done <- g.Run(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	stop := guard(false)
	b.guarded("no bridge", nil)
	pods, others := b.bridge("cni0"), b.bridge("other0")
	b.guarded("no port", []int{})
	first := b.port(pods, "first", false)
	b.port(others, "foreign", false)
	b.port(pods, "inner", true)
	b.port(pods, "vethwe-bridge", false)
	b.guarded("a pod's port", []int{first})
	second := b.port(pods, "second", false)
	b.guarded("another one", []int{first, second})

	table.broken.Store(true)
	eventually(t, "saying so", func() bool { return journal.count("cannot be kept from passing") == 1 })
	command(t, "nft", "delete", "table", "bridge", "weave-npc")
	table.broken.Store(false)
	b.guarded("repaired", []int{first, second})
	eventually(t, "saying so", func() bool {
		return journal.count("kept from passing between pods again") == 1 && journal.count("somebody changed what is ours") == 1
	})
	link, err := netlink.LinkByIndex(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkDel(link); err != nil {
		t.Fatal(err)
	}
	b.guarded("the first is gone", []int{second})
	stop()
	b.guarded("we ended", []int{second})
	stop = guard(true)
	b.guarded("all tags are allowed", nil)
	stop()
}
