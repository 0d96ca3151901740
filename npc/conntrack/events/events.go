// Package events reports new connections of the kernel's connection tracking: those whose first packet was accepted.
//
//	r, err := events.Open()
//	err = r.Run(ctx, func(opened []events.Connection) { ... })
//
// A connection whose first packet was dropped gives no event. The package knows nothing about pods or policies.
package events

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/weave-npc/weave-npc/npc/conntrack"
)

const (
	// period is the time between two readings. A reader that waits for each event wakes with each packet, which costs
	// four times as much.
	period = 10 * time.Millisecond
	// bufferSize is the size of the kernel's queue of events: a third of a second at 20,000 connections a second.
	bufferSize = 4 << 20
	// setting is 0 if the kernel sends no events at all.
	setting = "/proc/sys/net/netfilter/nf_conntrack_events"
)

// Connection is a new connection as the FORWARD chain saw it, after the destination and before the source was
// translated.
type Connection struct {
	Src, Dst netip.Addr
	// Protocol is the IP protocol number, and Port the destination's port, 0 of a protocol without ports.
	Protocol uint8
	Port     uint16
}

// Reader reads events in the network namespace of the thread that opened it.
type Reader struct {
	subscription *conntrack.Subscription
	opened       []Connection
	blind        func() error
	lost         atomic.Uint64
	resumed      atomic.Uint64
	unsynced     atomic.Uint64
}

// Open subscribes to the events of new connections.
func Open() (*Reader, error) {
	if err := blind(setting); err != nil {
		return nil, err
	}
	s, err := conntrack.Subscribe(unix.NFNLGRP_CONNTRACK_NEW, bufferSize)
	if err != nil {
		return nil, errors.Wrap(err, "subscribing to the events of connection tracking")
	}
	return &Reader{subscription: s, blind: func() error { return blind(setting) }}, nil
}

// blind returns an error if the kernel gives no events.
func blind(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return errors.Errorf("the kernel gives no events of connections: %s is not there "+
			"(CONFIG_NF_CONNTRACK_EVENTS, module nf_conntrack)", path)
	}
	if err != nil {
		return errors.Wrap(err, "reading whether the kernel gives events of connections")
	}
	if strings.TrimSpace(string(text)) == "0" {
		return errors.New("the kernel gives no events of connections: " +
			"net.netfilter.nf_conntrack_events is 0, set it to 1 or 2")
	}
	return nil
}

// Close ends the subscription.
func (r *Reader) Close() { r.subscription.Close() }

// Lost returns how many events the kernel dropped because they were not read in time.
func (r *Reader) Lost() uint64 { return r.lost.Load() }

// Resumed returns how many TCP connections were taken up in the middle. They may be older than the node's memory of
// them, and which end opened them is not known.
func (r *Reader) Resumed() uint64 { return r.resumed.Load() }

// Unsynced returns how many events could not be understood.
func (r *Reader) Unsynced() uint64 { return r.unsynced.Load() }

// Run passes on the new connections of each period until the context ends, or until there are no events any more. The
// slice is valid until handle returns.
func (r *Reader) Run(ctx context.Context, handle func(opened []Connection)) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	const looks = int(time.Second / period)
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := r.read(handle); err != nil {
			return err
		}
		if n%looks == 0 {
			if err := r.blind(); err != nil {
				return err
			}
		}
	}
}

// read empties the kernel's queue once. It returns even if events arrive faster than they are handled.
func (r *Reader) read(handle func([]Connection)) error {
	r.opened = r.opened[:0]
	for len(r.opened) < maxBatch {
		e, ok, err := r.subscription.Next()
		if errors.Is(err, conntrack.ErrMalformed) {
			r.unsynced.Add(1)
			continue
		}
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		r.add(&e)
	}
	if len(r.opened) > 0 {
		handle(r.opened)
	}
	lost, err := r.subscription.Dropped()
	r.lost.Add(lost)
	return err
}

// maxBatch bounds how many connections are passed on at once, and so the memory for them.
const maxBatch = 16384

// add takes in an event.
func (r *Reader) add(e *conntrack.Entry) {
	switch {
	case e.Zone != 0 || e.Expected():
		// Another table's, or an expected connection of a conntrack helper, which no rule evaluates.
	case e.Protocol == unix.IPPROTO_TCP && !e.SYNSent():
		r.resumed.Add(1)
	default:
		r.opened = append(r.opened, connection(e))
	}
}

func connection(e *conntrack.Entry) Connection {
	return Connection{Src: e.Source, Dst: e.Destination, Protocol: e.Protocol, Port: e.Port}
}

// Replied lists the connections in the kernel's table that both ends have sent packets of. What comes and goes
// meanwhile may be missing. Zones other than the node's own are left out.
func Replied(each func(Connection)) error {
	return conntrack.Replied(func(e conntrack.Entry) {
		if e.Zone == 0 {
			each(connection(&e))
		}
	})
}
