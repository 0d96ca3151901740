package nodeaddr

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weave-npc/weave-npc/test/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Main(m)) }

// newInterface adds an interface, and returns a function that adds an address to it.
func newInterface(t *testing.T) (assign func(text string)) {
	t.Helper()
	l := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "addr0"}}
	if err := netlink.LinkAdd(l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(l) })
	return func(text string) {
		t.Helper()
		a, err := netlink.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.AddrAdd(l, a); err != nil {
			t.Fatal(err)
		}
	}
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// TestLook: both sources are merged, and the addresses are passed on only when they change.
func TestLook(t *testing.T) {
	assign := newInterface(t)
	assign("192.0.2.9/24")
	var got [][]netip.Addr
	var asked []netip.Addr
	var failing error
	asks := 0
	f := &Follower{Log: slog.New(slog.DiscardHandler), Set: func(a []netip.Addr) { got = append(got, a) },
		Ask: func(context.Context) ([]netip.Addr, error) { asks++; return asked, failing }}
	now := time.Unix(1000, 0)
	look := func(when string, sets, askedTimes int, holds ...string) {
		t.Helper()
		f.look(t.Context(), now)
		if len(got) != sets || asks != askedTimes {
			t.Fatalf("%s: passed on %d times, asked %d times; want %d and %d", when, len(got), asks, sets, askedTimes)
		}
		last := got[len(got)-1]
		for _, a := range holds {
			if !slices.Contains(last, addr(a)) || !slices.IsSortedFunc(last, netip.Addr.Compare) {
				t.Errorf("%s: %v lacks %s, or is not sorted", when, last, a)
			}
		}
	}
	asked = []netip.Addr{addr("198.51.100.1"), addr("192.0.2.9")}
	look("at first", 1, 1, "192.0.2.9", "198.51.100.1", "127.0.0.1")
	if n := len(got[0]); n != len(slices.Compact(slices.Clone(got[0]))) {
		t.Errorf("an address is there twice: %v", got[0])
	}
	look("nothing has changed", 1, 1)
	assign("192.0.2.10/24")
	look("an address of an interface", 2, 1, "192.0.2.10", "198.51.100.1")
	now = now.Add(askEvery)
	failing = errors.New("no API server")
	look("the Node object cannot be read", 2, 2)
	now = now.Add(askAgain)
	failing, asked = nil, []netip.Addr{addr("198.51.100.2")}
	look("it can be read again", 3, 3, "198.51.100.2")
	if slices.Contains(got[2], addr("198.51.100.1")) {
		t.Errorf("an address that is gone from the Node object stays: %v", got[2])
	}
}

// TestRun: a new address of an interface is passed on soon.
func TestRun(t *testing.T) {
	assign := newInterface(t)
	var log bytes.Buffer
	got := make(chan []netip.Addr, 10)
	f := &Follower{Log: slog.New(slog.NewTextHandler(&log, nil)), Set: func(a []netip.Addr) { got <- a }}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	<-got
	assign("192.0.2.77/24")
	start := time.Now()
	for deadline := time.After(2 * rereadEvery); ; {
		select {
		case addrs := <-got:
			if !slices.Contains(addrs, addr("192.0.2.77")) {
				continue
			}
		case <-deadline:
			t.Fatal("the address is not passed on")
		}
		break
	}
	if took := time.Since(start); took >= rereadEvery {
		t.Errorf("it took %s", took)
	}
	cancel()
	if err := <-ended; err != nil || log.Len() > 0 {
		t.Errorf("%v, and the log is\n%s", err, log.String())
	}
}
