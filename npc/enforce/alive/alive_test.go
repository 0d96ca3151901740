package alive

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weave-npc/weave-npc/ipset"
	"github.com/weave-npc/weave-npc/npc"
	"github.com/weave-npc/weave-npc/test/await"
	"github.com/weave-npc/weave-npc/test/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.Main(m)) }

// record is a kernel that counts what is renewed.
type record struct {
	ops int
	err error
}

func (r *record) Apply(ops []ipset.Op) error {
	r.ops += len(ops)
	return r.err
}

func (r *record) Close() error { return nil }

func renewal(name string) ipset.Op {
	return ipset.Op{Kind: ipset.Add, Set: ipset.Set{Name: name, Type: ipset.HashNet, Family: ipset.IPv4, Timeout: 5},
		Elements: []ipset.Element{{Entry: ipset.Net(netip.MustParsePrefix("0.0.0.0/1"))}}}
}

// TestS115_WhatIsRenewed: nothing before the kernel holds what is wanted, nor while the syncer is stuck.
func TestS115_WhatIsRenewed(t *testing.T) {
	var log bytes.Buffer
	var idle time.Duration
	sets := &record{}
	r := newRenewer(Config{Idle: func() time.Duration { return idle }, Log: slog.New(slog.NewTextHandler(&log, nil))}, sets)
	step := func(when string, ops int, logged string) {
		t.Helper()
		sets.ops = 0
		log.Reset()
		r.renew()
		if sets.ops != ops || !strings.Contains(log.String(), logged) || logged == "" && log.Len() > 0 {
			t.Errorf("%s: %d renewed, logged %q", when, sets.ops, &log)
		}
	}
	step("at first", 0, "")
	r.Keep(npc.IPv6, renewal("six"))
	step("one family", 1, "")
	r.Keep(npc.IPv4, renewal("four"))
	r.Keep(npc.IPv4, renewal("four"))
	step("both", 2, "")
	idle = stuckAfter - 1
	step("slow", 2, "")
	idle = stuckAfter
	step("stuck", 0, "the syncer is stuck")
	step("still stuck", 0, "")
	idle = 0
	step("no more", 2, "not stuck any more")
	sets.err = errors.New("no such set")
	step("failing", 2, "unknown addresses are closed soon")
	step("still failing", 2, "")
	sets.err = nil
	step("no more", 2, "can show the kernel again")
}

// TestS115_TheKernelSeesThatItRuns while it runs, and not for long after that.
func TestS115_TheKernelSeesThatItRuns(t *testing.T) {
	sandbox.Thread(t)
	conn, err := ipset.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	renewed := renewal("x")
	if err := conn.Apply([]ipset.Op{{Kind: ipset.Create, Set: renewed.Set}}); err != nil {
		t.Fatal(err)
	}
	r, err := Open(Config{Idle: func() time.Duration { return 0 }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	there := func() bool {
		t.Helper()
		sets, err := conn.List("x")
		if err != nil || len(sets) != 1 {
			t.Fatal(sets, err)
		}
		return len(sets[0].Members) > 0
	}
	done := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- r.Run(ctx) }()
	r.Keep(npc.IPv4, renewed)
	await.That(t, "renewing it", there)
	for end := time.Now().Add(7 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if !there() {
			t.Fatal("it has expired although it is renewed")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	await.That(t, "its end, as nothing renews it", func() bool { return !there() })
}
