package host

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
	// debounce is the time that changes of interfaces are collected before the addresses are read again.
	debounce = 100 * time.Millisecond
	// rereadEvery is the period of reading the addresses without reported changes.
	rereadEvery = 10 * time.Second
	// askEvery is the period of reading the Node object. Its addresses rarely change, and most are interfaces' too.
	askEvery = 10 * time.Minute
	// askAgain is the pause after the Node object could not be read.
	askAgain = 10 * time.Second
)

// AddressFollower reports the node's addresses when they change.
type AddressFollower struct {
	// Ask returns the addresses in the Node object; nil if there is none.
	Ask func(context.Context) ([]netip.Addr, error)
	// Set is called with all addresses, sorted.
	Set func([]netip.Addr)
	Log *slog.Logger

	last, asked []netip.Addr
	askAt       time.Time
	failing     bool
}

// ReadAddrs returns the addresses of the interfaces in the network namespace of the calling thread, sorted.
func ReadAddrs() ([]netip.Addr, error) {
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
	return sortedAddrs(out), nil
}

// Run follows the addresses until the context ends. It logs failures and tries again.
func (f *AddressFollower) Run(ctx context.Context) error {
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
			case <-time.After(debounce):
			}
			for len(changes) > 0 {
				<-changes
			}
		}
	}
}

// subscribe returns a channel that receives changes of interfaces' addresses. It is nil if the kernel does not report
// them; the follower is only slower then.
func (f *AddressFollower) subscribe(ctx context.Context) <-chan netlink.AddrUpdate {
	changes := make(chan netlink.AddrUpdate, 64)
	options := netlink.AddrSubscribeOptions{ErrorCallback: func(error) {}}
	if err := netlink.AddrSubscribeWithOptions(changes, ctx.Done(), options); err != nil {
		f.Log.Debug("changes of addresses are not reported", "err", err)
		return nil
	}
	return changes
}

// look reads the addresses and reports them if they have changed.
func (f *AddressFollower) look(ctx context.Context, now time.Time) {
	own, err := ReadAddrs()
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
	all := sortedAddrs(slices.Concat(own, f.asked))
	if f.last != nil && slices.Equal(all, f.last) {
		return
	}
	f.last = all
	f.Set(all)
}

func sortedAddrs(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}
