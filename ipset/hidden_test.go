package ipset

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestListsOfSetsAreListedHoweverManySetsThereAre passes the numbers of sets at which the kernel's own listing lacks
// all lists of sets: 256 and 320, where the kernel has room for no other set.
func TestListsOfSetsAreListedHoweverManySetsThereAre(t *testing.T) {
	for _, buffer := range []string{"large", "small"} {
		t.Run(buffer+" receive buffer", func(t *testing.T) {
			c := open(t)
			if buffer == "small" {
				shrinkReceiveBuffer(t, c)
			}
			growSlotBySlot(t, c)
		})
	}
}

// growSlotBySlot creates sets one by one, every other one foreign, and expects to see the lists of sets all the time,
// also while an older set is gone.
func growSlotBySlot(t *testing.T, c *Conn) {
	t.Helper()
	member := Set{Name: "weave-member", Type: HashIP, Family: IPv4}
	between := Set{Name: "weave-between", Type: HashIP, Family: IPv4}
	list := Set{Name: "weave-list", Type: ListSet}
	apply(t, c, Op{Kind: Create, Set: between}, Op{Kind: Create, Set: member},
		Op{Kind: Create, Set: list, Elements: plain(Member(member.Name))}, Op{Kind: Create, Set: Set{Name: "weave-empty", Type: ListSet}},
		Op{Kind: Create, Set: Set{Name: "foreign-list", Type: ListSet}})
	want := []string{"weave-between", "weave-empty", "weave-list", "weave-member"}
	for i := range 320 {
		name := fmt.Sprintf([]string{"weave-%d", "foreign-%d"}[i%2], i)
		apply(t, c, Op{Kind: Create, Set: Set{Name: name, Type: HashIP, Family: IPv4}})
		if i%2 == 0 {
			want = append(want, name)
		}
		if i < 240 {
			continue
		}
		wantListed(t, c, want)
		apply(t, c, Op{Kind: Destroy, Set: between})
		wantListed(t, c, slices.DeleteFunc(slices.Clone(want), func(name string) bool { return name == between.Name }))
		apply(t, c, Op{Kind: Create, Set: between})
	}
}

// wantListed expects certain sets of ours, with all that is known of them, by headers and by members.
func wantListed(t *testing.T, c *Conn, want []string) {
	t.Helper()
	headers, err := c.Headers("weave-")
	if err != nil {
		t.Fatal(err)
	}
	listings, err := c.List("weave-")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, l := range listings {
		names = append(names, l.Name)
		if headers[i] != l.Header {
			t.Fatalf("header %+v, listed %+v", headers[i], l.Header)
		}
		if l.Name == "weave-list" {
			wantElements(t, l.Members, plain(Member("weave-member")))
		}
	}
	slices.Sort(names)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(names, want) {
		t.Fatalf("with %d sets of ours, %d are listed (-want +got):\n%s", len(want), len(names), cmp.Diff(want, names))
	}
}

// shrinkReceiveBuffer makes the receive buffer as small as the kernel makes it.
func shrinkReceiveBuffer(t *testing.T, c *Conn) {
	t.Helper()
	if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	size, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		t.Fatal(err)
	}
	c.budget = size / 2
}
