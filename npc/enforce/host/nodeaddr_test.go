package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

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
	f := &AddressFollower{Log: slog.New(slog.DiscardHandler), Set: func(a []netip.Addr) { got = append(got, a) },
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

// TestReadingFails: what is known stays until the addresses can be read again, which is logged once.
func TestReadingFails(t *testing.T) {
	assign := newInterface(t)
	var log bytes.Buffer
	var got [][]netip.Addr
	f := &AddressFollower{Log: slog.New(slog.NewTextHandler(&log, nil)), Set: func(a []netip.Addr) { got = append(got, a) }}
	f.look(t.Context(), time.Unix(1000, 0))
	assign("192.0.2.78/24")
	withoutSockets(t, func() {
		for range 3 {
			f.look(t.Context(), time.Unix(1001, 0))
		}
	})
	if len(got) != 1 || strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), "listing the addresses of this node") {
		t.Errorf("passed on %d times, and the log is\n%s", len(got), log.String())
	}
	f.look(t.Context(), time.Unix(1002, 0))
	if len(got) != 2 || !slices.Contains(got[1], addr("192.0.2.78")) {
		t.Errorf("afterwards: %v", got)
	}
	withoutSockets(t, func() { f.look(t.Context(), time.Unix(1003, 0)) })
	if n := strings.Count(log.String(), "level=WARN"); n != 2 {
		t.Errorf("failing again is logged %d times", n-1)
	}
}

// withoutSockets calls a function while the process can open no further file.
func withoutSockets(t *testing.T, f func()) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	f()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
}

// TestWithoutReports: while the kernel does not report changes, the addresses are still read.
func TestWithoutReports(t *testing.T) {
	var log bytes.Buffer
	f := &AddressFollower{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	withoutSockets(t, func() {
		if f.subscribe(t.Context()) != nil {
			t.Error("it subscribes without a socket")
		}
	})
	if !strings.Contains(log.String(), "changes of addresses are not reported") {
		t.Errorf("the log is\n%s", log.String())
	}
}

// TestBursts: addresses that come together are passed on together, and the end may come while they are collected.
func TestBursts(t *testing.T) {
	assign := newInterface(t)
	got := make(chan []netip.Addr, 100)
	f := &AddressFollower{Log: slog.New(slog.DiscardHandler), Set: func(a []netip.Addr) { got <- a }}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	<-got
	start := time.Now()
	for i := range 20 {
		assign(fmt.Sprintf("192.0.2.%d/24", 100+i))
	}
	times := 0
	for all := []netip.Addr(nil); !slices.Contains(all, addr("192.0.2.119")); times++ {
		all = <-got
	}
	if took := time.Since(start); times > 10+int(took/debounce) {
		t.Errorf("20 addresses are passed on in %d parts within %s", times, took)
	}
	assign("192.0.2.120/24")
	time.Sleep(debounce / 4)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestRun: a new address of an interface is passed on soon.
func TestRun(t *testing.T) {
	assign := newInterface(t)
	var log bytes.Buffer
	got := make(chan []netip.Addr, 10)
	f := &AddressFollower{Log: slog.New(slog.NewTextHandler(&log, nil)), Set: func(a []netip.Addr) { got <- a }}
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
