// Package ifaces makes the interfaces that a node with pods has, for tests.
package ifaces

import (
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Node makes the interfaces of a node in the network namespace of the test's thread.
type Node struct {
	*testing.T
	// Elsewhere is where the peers of ports are.
	Elsewhere netns.NsHandle
}

// NewNode returns a node without interfaces. The test keeps to its thread.
func NewNode(t *testing.T) *Node {
	t.Helper()
	return &Node{t, elsewhere(t)}
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

// Bridge adds a bridge.
func (b *Node) Bridge(name string) netlink.Link {
	b.Helper()
	return b.Add(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}})
}

// Port adds a veth to a bridge, which leads to another namespace.
func (b *Node) Port(bridge netlink.Link, name string) int {
	b.Helper()
	return b.Add(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index}, PeerName: name + "p",
		PeerNamespace: netlink.NsFd(b.Elsewhere)}).Attrs().Index
}

// Join joins two bridges by a veth.
func (b *Node) Join(one, other netlink.Link) {
	b.Helper()
	b.Add(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "inner", MasterIndex: one.Attrs().Index}, PeerName: "outer"})
	outer, err := netlink.LinkByName("outer")
	if err != nil {
		b.Fatal(err)
	}
	if err := netlink.LinkSetMaster(outer, other); err != nil {
		b.Fatal(err)
	}
}

// Add adds an interface, and removes it after the test.
func (b *Node) Add(l netlink.Link) netlink.Link {
	b.Helper()
	if err := netlink.LinkAdd(l); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = netlink.LinkDel(l) })
	return l
}
