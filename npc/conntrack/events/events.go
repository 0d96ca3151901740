// Package events tells which connections the kernel's connection tracking has taken in: those whose first packet got
// through. It knows nothing about pods or policies, and imports no other package of this module.
//
//	r, err := events.Open()
//	err = r.Run(ctx, func(opened []events.Connection) { ... })
//
// A connection whose first packet was dropped gives no event.
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
)

const (
	// period is the time between two readings. A reader that waits for each event wakes with each packet, which costs
	// four times as much.
	period = 10 * time.Millisecond
	// bufferSize is the size of the kernel's queue of events: a third of a second at 20,000 connections a second.
	bufferSize = 4 << 20
	// setting tells whether the kernel gives events at all.
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
	socket   *socket
	opened   []Connection
	blind    func() error
	lost     atomic.Uint64
	resumed  atomic.Uint64
	unsynced atomic.Uint64
}

// Open subscribes to the events of new connections.
func Open() (*Reader, error) {
	if err := blind(setting); err != nil {
		return nil, err
	}
	s, err := subscribe(unix.NFNLGRP_CONNTRACK_NEW)
	if err != nil {
		return nil, errors.Wrap(err, "subscribing to the events of connection tracking")
	}
	return &Reader{socket: s, blind: func() error { return blind(setting) }}, nil
}

// blind returns an error if the kernel gives no events.
func blind(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return errors.Errorf("the kernel gives no events of connections: %s is not there (CONFIG_NF_CONNTRACK_EVENTS, module nf_conntrack)", path)
	}
	if err != nil {
		return errors.Wrap(err, "reading whether the kernel gives events of connections")
	}
	if strings.TrimSpace(string(text)) == "0" {
		return errors.New("the kernel gives no events of connections: net.netfilter.nf_conntrack_events is 0, set it to 1 or 2")
	}
	return nil
}

// Close ends the subscription.
func (r *Reader) Close() { r.socket.close() }

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

// read empties the kernel's queue once. It does not go on for ever if events come faster than they are handled.
func (r *Reader) read(handle func([]Connection)) error {
	r.opened = r.opened[:0]
	for len(r.opened) < maxBatch {
		message, err := r.socket.next()
		if err != nil {
			return err
		}
		if message == nil {
			break
		}
		r.add(message)
	}
	if len(r.opened) > 0 {
		handle(r.opened)
	}
	lost, err := r.socket.dropped()
	r.lost.Add(lost)
	return err
}

// maxBatch bounds how many connections are passed on at once, and so the memory for them.
const maxBatch = 16384

// add takes in one datagram of the kernel.
func (r *Reader) add(datagram []byte) {
	for len(datagram) > 0 {
		var m message
		var ok bool
		if datagram, ok = m.read(datagram); !ok {
			r.unsynced.Add(1)
			return
		}
		switch {
		case m.zone != 0 || m.status&statusExpected != 0:
			// Another table's, or a connection that a helper of the kernel expected, which no rule judges.
		case m.connection.Protocol == unix.IPPROTO_TCP && m.tcpState != tcpSynSent:
			r.resumed.Add(1)
		default:
			r.opened = append(r.opened, m.connection)
		}
	}
}
