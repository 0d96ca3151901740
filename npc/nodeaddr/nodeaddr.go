// Package nodeaddr follows the addresses that this node has itself: those of its interfaces and those in its Node object.
package nodeaddr

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/pkg/errors"
	"github.com/vishvananda/netlink"
)

const (
	// settle is how long changes of interfaces are collected before the addresses are read again.
	settle = 100 * time.Millisecond
	// rereadEvery is how often the addresses are read though no change was reported.
	rereadEvery = 10 * time.Second
	// askEvery is how often the Node object is read: its addresses hardly ever change, and nearly all are interfaces' too.
	askEvery = 10 * time.Minute
	// askAgain is how long to wait after the Node object could not be read.
	askAgain = 10 * time.Second
)

// Follower passes the node's addresses on when they change.
type Follower struct {
	// Ask returns the addresses in the Node object; nil if there is none.
	Ask func(context.Context) ([]netip.Addr, error)
	// Set takes all addresses, sorted.
	Set func([]netip.Addr)
	Log *slog.Logger

	last, asked []netip.Addr
	askAt       time.Time
	failing     bool
}

// Read returns the addresses of the interfaces in the network namespace of the calling thread, sorted.
func Read() ([]netip.Addr, error) {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, errors.Wrap(err, "listing the addresses of this node")
	}
	var out []netip.Addr
	for _, l := range list {
		if a, ok := netip.AddrFromSlice(l.IP); ok {
			out = append(out, a.Unmap())
		}
	}
	return sorted(out), nil
}

// Run follows the addresses until the context ends. Whatever fails is logged and tried again.
func (f *Follower) Run(ctx context.Context) error {
	changes := f.subscribe(ctx)
	tick := time.NewTicker(rereadEvery)
	defer tick.Stop()
	for {
		f.look(ctx, time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if changes == nil {
				changes = f.subscribe(ctx)
			}
		case _, ok := <-changes:
			if !ok {
				changes = nil
				continue
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(settle):
			}
			for len(changes) > 0 {
				<-changes
			}
		}
	}
}

// subscribe returns a channel that receives changes of interfaces' addresses; nil if they are not reported, which only makes
// the follower slower.
func (f *Follower) subscribe(ctx context.Context) <-chan netlink.AddrUpdate {
	changes := make(chan netlink.AddrUpdate, 64)
	options := netlink.AddrSubscribeOptions{ErrorCallback: func(error) {}}
	if err := netlink.AddrSubscribeWithOptions(changes, ctx.Done(), options); err != nil {
		f.Log.Debug("changes of addresses are not reported", "err", err)
		return nil
	}
	return changes
}

// look reads the addresses and passes them on if they are others than before.
func (f *Follower) look(ctx context.Context, now time.Time) {
	own, err := Read()
	if err != nil {
		if !f.failing {
			f.Log.Warn("cannot read the addresses of this node, trying again", "err", err)
		}
		f.failing = true
		return
	}
	f.failing = false
	if f.Ask != nil && !now.Before(f.askAt) {
		f.askAt = now.Add(askEvery)
		if asked, err := f.Ask(ctx); err == nil {
			f.asked = asked
		} else {
			f.askAt = now.Add(askAgain)
			f.Log.Debug("cannot read the addresses in the Node object, trying again", "err", err)
		}
	}
	all := sorted(slices.Concat(own, f.asked))
	if f.last != nil && slices.Equal(all, f.last) {
		return
	}
	f.last = all
	f.Set(all)
}

func sorted(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}
