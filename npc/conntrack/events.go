package conntrack

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
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

// Opened is a new connection as the FORWARD chain saw it, after the destination and before the source was
// translated.
type Opened struct {
	Src, Dst netip.Addr
	// Protocol is the IP protocol number, and Port the destination's port, 0 of a protocol without ports.
	Protocol uint8
	Port     uint16
}

// EventReader reads events in the network namespace of the thread that opened it.
type EventReader struct {
	subscription *subscription
	opened       []Opened
	blind        func() error
	lost         atomic.Uint64
	resumed      atomic.Uint64
	unsynced     atomic.Uint64
}

// OpenEvents subscribes to the events of new connections.
func OpenEvents() (*EventReader, error) {
	if err := blind(setting); err != nil {
		return nil, err
	}
	s, err := subscribe(unix.NFNLGRP_CONNTRACK_NEW, bufferSize)
	if err != nil {
		return nil, errors.Wrap(err, "subscribing to the events of connection tracking")
	}
	return &EventReader{subscription: s, blind: func() error { return blind(setting) }}, nil
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
func (r *EventReader) Close() { r.subscription.conn.close() }

// Lost returns how many events the kernel dropped because they were not read in time.
func (r *EventReader) Lost() uint64 { return r.lost.Load() }

// Resumed returns how many TCP connections were taken up in the middle. They may be older than the node's memory of
// them, and which end opened them is not known.
func (r *EventReader) Resumed() uint64 { return r.resumed.Load() }

// Unsynced returns how many events could not be understood.
func (r *EventReader) Unsynced() uint64 { return r.unsynced.Load() }

// Run passes on the new connections of each period until the context ends, or until there are no events any more. The
// slice is valid until handle returns.
func (r *EventReader) Run(ctx context.Context, handle func(opened []Opened)) error {
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
func (r *EventReader) read(handle func([]Opened)) error {
	r.opened = r.opened[:0]
	for len(r.opened) < maxBatch {
		e, ok, err := r.subscription.next()
		if errors.Is(err, errMalformed) {
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
	lost, err := r.subscription.dropped()
	r.lost.Add(lost)
	return err
}

// maxBatch bounds how many connections are passed on at once, and so the memory for them.
const maxBatch = 16384

// add takes in an event.
func (r *EventReader) add(e *Entry) {
	switch {
	case e.Zone != 0 || e.status&statusExpected != 0:
		// Another table's, or an expected connection of a conntrack helper, which no rule evaluates.
	case e.Protocol == unix.IPPROTO_TCP && e.state != stateSYNSent: // more than the SYN was seen
		r.resumed.Add(1)
	default:
		r.opened = append(r.opened, connection(e))
	}
}

func connection(e *Entry) Opened {
	return Opened{Src: e.Source, Dst: e.Destination, Protocol: e.Protocol, Port: e.Port}
}
